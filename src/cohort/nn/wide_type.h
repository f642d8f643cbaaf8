// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/tensor.h"

namespace cohort {

// What norms and losses of a tensor are computed in: 8 or 11 bits are too few to add
// up much.
inline at::ScalarType wide_type(const Tensor& tensor) {
  const auto dtype = tensor.scalar_type();
  const bool narrow = dtype == at::kBFloat16 || dtype == at::kHalf;
  return narrow ? at::kFloat : dtype;
}

}  // namespace cohort
