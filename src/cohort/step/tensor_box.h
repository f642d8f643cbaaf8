// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cohort/tensor.h"

namespace cohort {

inline constexpr size_t kMostDims = 64;  // the most that ATen's operators take

// Elements of a tensor of these sizes. Nothing if no tensor has them, or they are more
// than `most`, where a size of zero counts as one: products with it stay in range too.
std::optional<int64_t> numel_within(std::span<const int64_t> sizes, int64_t most);

// Why this is no box of a tensor of `numel` elements; empty: it is one.
std::string box_trouble(const TensorBox& box, int64_t numel);
// "[0:3,2:4]", in names and messages; empty for the whole.
std::string box_text(const TensorBox& box);

// Where the elements of a box lie in the whole tensor. Both are counted in memory
// order, so a later element of the box is a later one of the whole as well. The box is
// legal.
class BoxMap {
 public:
  BoxMap(const TensorBox& box, int64_t numel);

  // Elements of the box.
  int64_t numel() const { return numel_; }
  // The element of the whole that element `at` of the box is.
  int64_t to_whole(int64_t at) const;
  // So many elements of the box, from `at` on, are neighbours in the whole too.
  int64_t run_from(int64_t at) const;
  // So many elements of the box come before this element of the whole: where it lies in
  // the box, if it does.
  int64_t before(int64_t element) const;

 private:
  // Dimensions that the box has all of are joined with the next slower one.
  struct Dim {
    int64_t size, from, extent;
    int64_t stride;  // in the whole
    int64_t inside;  // elements of the box for each index
  };
  std::vector<Dim> dims_;
  int64_t numel_ = 0;
};

}  // namespace cohort
