// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cohort/tensor.h"

namespace cohort {

// 2-d convolution with the faster of LibTorch's two backwards for this processor.
// `bias` may be undefined. The result is that of at::conv2d up to rounding in the
// gradients.
Tensor convolve(const Tensor& input, const Tensor& weight, const Tensor& bias,
                int64_t stride, int64_t padding);

}  // namespace cohort
