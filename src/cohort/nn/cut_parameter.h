// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/layers.h"
#include "cohort/nn/first_value.h"

namespace cohort {

// How tensor-parallel ranks share a parameter: by equal parts along one dimension.
struct CutShape {
  std::vector<int64_t> shape;  // the whole parameter's
  int64_t dim = 0;             // along which it is cut
  int64_t groups = 1;          // each of which is cut alike: q, k and v of one matrix
};

// The part of so many items that a rank has. The last may have fewer than the others.
struct PartRange {
  int64_t first = 0;
  int64_t count = 0;
  int64_t room = 0;  // what a rank has most of all
};
PartRange range_of(int64_t items, const TensorPart& part);

// Makes a rank's part of a parameter and registers it; all of it where the rank is
// alone. Where parts are not equal (only along dimension 0) the tensor ends in zeros.
Tensor add_part(TensorLists& tensors, const std::string& name, const CutShape& cut,
                const FirstValue& value, const TensorPart& part);

// Normal numbers around 0, keyed by the parameter's name.
FirstValue normal_values(double deviation, uint64_t seed, const std::string& name);
FirstValue all_equal_to(double value);

// ConfigError with the legal sizes of `tp` unless that many items share out evenly.
void require_even(std::string_view what, int64_t items, const TensorPart& part);
// ConfigError unless every rank has some of the items.
void require_some(std::string_view what, int64_t items, const TensorPart& part);

}  // namespace cohort
