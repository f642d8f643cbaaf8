// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cohort/step/state_piece.h"

namespace cohort {

// A piece of state that a rank has or wants: elements [begin, end) of a box of a
// tensor.
struct Listing {
  std::string name;
  TensorBox box = {};
  int64_t begin = 0;
  int64_t end = 0;
  int64_t width = 0;  // bytes an element

  // As far as this piece knows the tensor.
  BoxMap map() const;
};

// What a rank tells the others of itself.
struct StateListing {
  std::vector<Listing> have, want;
};

std::string to_text(std::span<const StatePiece> have, std::span<const StatePiece> want);
// CommError for what is none.
StateListing to_listing(const std::string& text);

}  // namespace cohort
