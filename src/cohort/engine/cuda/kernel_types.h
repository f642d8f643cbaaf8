// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "cohort/core/error.h"
#include "cohort/tensor.h"

namespace cohort {

// What gradients, parameters and logits are in memory, as kernels call it; programs
// have a kernel for each, in this order.
inline constexpr std::array<const char*, 3> kKernelTypes = {"float", "Bfloat16",
                                                            "Half"};

// BugError for another.
inline int kernel_type(at::ScalarType dtype) {
  if (dtype == at::kFloat) return 0;
  COHORT_CHECK(dtype == at::kBFloat16 || dtype == at::kHalf, "no kernels of dtype ",
               c10::toString(dtype));
  return dtype == at::kBFloat16 ? 1 : 2;
}

}  // namespace cohort
