// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/step/block.h"

namespace cohort {

// x W^T + b whose backward writes the gradients of W and b straight into their
// targets, where they are given: no second pass over memory moves them there.
Tensor linear_with_targets(const Tensor& input, const Tensor& weight,
                           const Tensor& bias, GradTarget weight_target,
                           GradTarget bias_target);

}  // namespace cohort
