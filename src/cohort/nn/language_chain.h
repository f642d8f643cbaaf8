// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cohort/nn/vocabulary_head.h"
#include "cohort/step/block.h"

namespace cohort {

template <typename Options>
VocabularyHead::Form head_form(const Options& model) {
  return {.vocabulary = model.vocab, .tokens = model.context, .width = model.width};
}

// The head of a model that ends in a norm and the logits behind it.
template <typename Norm>
class NormHead : public LanguageHead {
 public:
  // `eps` of the norm, which has that name.
  template <typename Options>
  NormHead(const std::string& norm, double eps, const Options& model,
           const TiedWeight& embedding, const LayerOptions& layers)
      : norm_(tensors_, norm, model.width, eps, layers),
        head_(tensors_,
              add_head_weight(tensors_, "lm_head.weight", embedding,
                              {model.vocab, model.width}, layers),
              {}, head_form(model), layers.tensor) {}

  Values forward(const Values& inputs, Context& context) override {
    return head_(norm_(inputs.at(0), context), inputs.at(1), context);
  }
  Tensor logits_at(const Tensor& input, const Tensor& places,
                   Context& context) const override {
    return head_.logits_at(norm_(input, context), places, context);
  }
  std::vector<BlockCall> logit_calls(int64_t places) const override {
    return head_.logit_calls(places);
  }

 private:
  Norm norm_;
  VocabularyHead head_;
};

// An embedding, whose first parameter is the vocabulary's; layers, numbered behind
// `prefix`; and a head.
template <typename Embedding, typename Layer, typename Head, typename Options>
Chain language_chain(const Options& model, const LayerOptions& layers,
                     const std::string& prefix) {
  Chain chain{.blocks = {}, .loss = language_loss()};
  chain.blocks.push_back(std::make_unique<Embedding>(model, layers));
  for (int64_t i = 0; i < model.depth; ++i)
    chain.blocks.push_back(
        std::make_unique<Layer>(prefix + std::to_string(i), model, layers));
  const Block& first = *chain.blocks[0];
  const TiedWeight tied{model.tie, first.parameters()[0], first.cuts()[0]};
  chain.blocks.push_back(std::make_unique<Head>(model, tied, layers));
  return chain;
}

}  // namespace cohort
