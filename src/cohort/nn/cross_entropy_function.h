// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/data/ignored_target.h"
#include "cohort/nn/cut_parameter.h"

namespace cohort {

struct TokenLoss {
  Tensor sum;    // over tokens, a scalar of float32, or float64 as the logits
  Tensor count;  // number of tokens that are not ignored, a scalar of float64
};

// Cross entropy of logits (tokens, vocabulary) and token numbers, without a copy of the
// logits in float32, their softmax or their gradient: backward turns the logits into
// their gradient where they lie, so it runs once, and nobody else may need them.
//
// Tensor-parallel ranks have different columns: `columns` of the vocabulary, and behind
// them padding, which counts for nothing. Logits are never brought together: for each
// token a rank tells two numbers, in one call (declare_token_loss).
TokenLoss token_loss(const Tensor& logits, const Tensor& target,
                     const PartRange& columns, const TensorPart& part,
                     Context& context);

void declare_token_loss(TensorLists& tensors, int64_t tokens, const TensorPart& part);

}  // namespace cohort
