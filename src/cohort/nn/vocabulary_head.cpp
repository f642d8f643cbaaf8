// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/vocabulary_head.h"

#include <ATen/ATen.h>

#include <utility>

#include "cohort/nn/cross_entropy_function.h"
#include "cohort/nn/linear_function.h"

namespace cohort {
namespace {

constexpr double kHeadDeviation = 0.02;
constexpr int64_t kAligned = 64;

}  // namespace

VocabularyHead::VocabularyHead(TensorLists& tensors, Tensor weight, Tensor bias,
                               const Form& form, const TensorPart& part)
    : weight_(std::move(weight)),
      bias_(std::move(bias)),
      rows_(range_of(form.vocabulary, part)),
      vocabulary_(form.vocabulary),
      part_(part),
      begin_(tensors, form.tokens, form.width, part) {
  before_loss_ = tensors.forward_calls;
  declare_token_loss(tensors, form.tokens, part);
}

Values VocabularyHead::operator()(const Tensor& input, const Tensor& target,
                                  Context& context) const {
  const Tensor logits = logits_of(begin_(input, context), context);
  const TokenLoss loss =
      token_loss(logits.flatten(0, 1), target, rows_, part_, context);
  return {loss.sum, loss.count};
}

Tensor VocabularyHead::logits_at(const Tensor& input, const Tensor& places,
                                 Context& context) const {
  const Tensor all = begin_(input, context);
  const Tensor index = places.unsqueeze(-1).expand({-1, -1, all.size(2)});
  const Tensor logits = logits_of(all.gather(1, index), context);
  return all_logits(logits.narrow(2, 0, rows_.room), context);
}

std::vector<BlockCall> VocabularyHead::logit_calls(int64_t places) const {
  std::vector<BlockCall> calls;
  for (const auto& call : before_loss_)
    if (call.when == BlockCall::When::kEvaluate) calls.push_back(call);
  if (part_.size > 1)
    calls.push_back({.when = BlockCall::When::kEvaluate,
                     .axes = kTensorAxis,
                     .op = CallOp::kAllGather,
                     .dtype = at::ScalarType::Undefined,
                     .per_sample = places * rows_.room});
  return calls;
}

// Matrices whose rows are not aligned are slow to multiply on GPUs, and to copy the
// weights costs next to nothing.
Tensor VocabularyHead::logits_of(const Tensor& input, Context& context) const {
  const int64_t padding = (kAligned - rows_.room % kAligned) % kAligned;
  return padded_linear_layer(input, weight_, bias_, padding, context);
}

// Nothing is differentiated.
Tensor VocabularyHead::all_logits(const Tensor& part, Context& context) const {
  if (part_.size == 1) return part;
  const Tensor mine = part.detach().contiguous();
  Tensor all =
      at::empty({part_.size, mine.size(0), mine.size(1), rows_.room}, mine.options());
  context.calls->all_gather(kTensorAxis, all, mine);
  return all.permute({1, 2, 0, 3}).flatten(2).narrow(2, 0, vocabulary_);
}

Tensor add_head_weight(TensorLists& tensors, const std::string& name,
                       const TiedWeight& embedding, const std::vector<int64_t>& shape,
                       const LayerOptions& layers) {
  if (embedding.tie)
    return tensors.add_parameter(embedding.tensor.name, embedding.tensor.tensor,
                                 embedding.cut);
  return add_part(tensors, name, {.shape = shape},
                  normal_values(kHeadDeviation, layers.seed, name), layers.tensor);
}

Loss language_loss() {
  return {.function =
              [](const Values& outputs, const Values&) {
                return WeightedLoss{.sum = outputs.at(0), .counted = outputs.at(1)};
              },
          .metrics = {
              .perplexity = true, .tokens_per_second = true, .flops_per_step = true}};
}

}  // namespace cohort
