// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "cohort/layers.h"

namespace cohort {

// What tensor-parallel ranks say to each other (Shoeybi et al. 2019; for sequences
// Korthikanti et al. 2022). Between layers that are cut a rank has all tokens of its
// samples, or (TensorPart::sequence) its part of every sequence. Each of these does
// nothing where a rank is alone. They are made in the order of forward, and declare
// their calls then; activations are (samples, tokens, width) with `tokens` of a whole
// sequence.

// Before layers of which ranks have different columns: brings all tokens together. The
// gradients of the ranks add up.
class SplitBegin {
 public:
  SplitBegin(TensorLists& tensors, int64_t tokens, int64_t width,
             const TensorPart& part);
  Tensor operator()(const Tensor& input, Context& context) const;

 private:
  TensorPart part_;
};

// Behind layers of which ranks have different rows: what the ranks computed adds up.
class SplitEnd {
 public:
  SplitEnd(TensorLists& tensors, int64_t tokens, int64_t width, const TensorPart& part);
  Tensor operator()(const Tensor& input, Context& context) const;

 private:
  TensorPart part_;
};

// For parameters that every rank has whole but uses with its own tokens: gives them
// back such that the ranks' gradients add up. `numel`: of all of them.
class SummedGradients {
 public:
  SummedGradients(TensorLists& tensors, int64_t numel, const TensorPart& part);
  std::vector<Tensor> operator()(std::vector<Tensor> parameters,
                                 Context& context) const;

 private:
  TensorPart part_;
};

// Where a rank's part of every sequence begins, if it has `tokens` of it; and its first
// element, in the numbering of the whole sample.
int64_t first_token(const TensorPart& part, int64_t tokens);
int64_t first_element(const TensorPart& part, const Tensor& activation);

// Declares one call of the forward, in training and in evaluation.
void declare_forward(TensorLists& tensors, const BlockCall& call);

}  // namespace cohort
