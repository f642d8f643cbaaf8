// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "cohort/step/state_piece.h"

namespace cohort {

// Elements that two pieces of one tensor both have, neighbours in both: counted from
// the start of each piece.
struct Overlap {
  int64_t in_a = 0;
  int64_t in_b = 0;
  int64_t count = 0;
};

// Walks what two pieces of one tensor share, however each is cut; both are counted in
// the same memory order. Takes no memory, and skips what only one of them has.
class Overlaps {
 public:
  Overlaps(const TensorSpec& a, const TensorSpec& b);

  // The next stretch, in order; nothing after the last.
  std::optional<Overlap> next();

 private:
  std::optional<Overlap> next_in_box();
  std::optional<Overlap> next_run();

  BoxMap a_, b_;
  bool same_box_;
  int64_t a_begin_, a_end_, b_begin_, b_end_;
  int64_t at_;  // in the box of a: what is before it was walked
};

bool overlap(const TensorSpec& a, const TensorSpec& b);

// Copies what both have from one to the other, on any devices, as the dtype of `to`.
// Returns how many elements. The data of both is contiguous.
int64_t copy_overlap(const StatePiece& from, const StatePiece& to);

}  // namespace cohort
