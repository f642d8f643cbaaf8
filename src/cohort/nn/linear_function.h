// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/block.h"

namespace cohort {

// How the weights of a linear layer lie in memory.
enum class WeightOrder {
  kOutIn,  // y = x W^T + b, as torch.nn.Linear has it
  kInOut,  // y = x W + b, as GPT-2's files have it
};

// A linear layer of which the bias may be undefined. Its backward writes the gradients
// of weight and bias straight into the targets in the context's cells, where there are
// some: no second pass over memory moves them there.
Tensor linear_layer(const Tensor& input, const Tensor& weight, const Tensor& bias,
                    WeightOrder order, Context& context);

// The same with `padding` rows of zeros behind those of a weight that lies as kOutIn,
// so that its products are aligned: the output has as many columns more.
Tensor padded_linear_layer(const Tensor& input, const Tensor& weight,
                           const Tensor& bias, int64_t padding, Context& context);

}  // namespace cohort
