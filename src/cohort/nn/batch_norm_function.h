// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/tensor.h"

namespace cohort {

struct NormalizedBatch {
  Tensor output;
  Tensor mean, var;  // float32, by channel; of the whole batch, not unbiased
};

// Whether batch_norm_by_sums serves this input: narrow floats on a GPU. LibTorch's own
// kernel for the statistics takes two to three times as long there.
bool has_batch_norm_by_sums(const Tensor& input);

// Batch normalisation of images (N, C, H, W), whose mean and variance come from sums
// and sums of squares in float32. That loses digits where a channel's mean is far
// larger than its deviation, no more than narrow floats have lost already; so it is not
// for float32.
NormalizedBatch batch_norm_by_sums(const Tensor& input, const Tensor& weight,
                                   const Tensor& bias, double eps);

}  // namespace cohort
