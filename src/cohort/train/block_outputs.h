// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <functional>
#include <map>

#include "cohort/block.h"
#include "cohort/tensor.h"

namespace cohort {

// An output of a block in one step. In this order one may have made the next one wrong.
struct OutputPlace {
  int block = 0;
  int slice = 0;  // number in the global batch

  auto operator<=>(const OutputPlace&) const = default;
};

using BlockOutputs = std::map<OutputPlace, Values>;

// Shows `seen` all that the chain's blocks give, as they give it; again where a forward
// runs again. It keeps copies if it keeps anything.
using OutputSeen = std::function<void(const OutputPlace& place, const Values& given)>;
void watch_outputs(Chain& chain, const OutputSeen& seen);

// The largest difference between what a rank's block gave and what the same block gave
// elsewhere, as a share of the largest element of that. Tensor-parallel rank `part` may
// have a part of it along one dimension, with padding at the end. What has another
// shape cannot be compared, and differs by 0.
double output_difference(const Values& given, const Values& wanted, int part);

}  // namespace cohort
