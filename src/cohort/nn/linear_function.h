// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/step/block.h"

namespace cohort {

// x W^T + b whose backward writes the gradients of W and b straight into the targets
// in their cells, where there are some: no second pass over memory moves them there.
Tensor linear_with_cells(const Tensor& input, const Tensor& weight, const Tensor& bias,
                         GradCell weight_cell, GradCell bias_cell);

}  // namespace cohort
