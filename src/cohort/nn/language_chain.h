// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cohort/block.h"
#include "cohort/nn/vocabulary_head.h"

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

 private:
  Tensor before_head(const Tensor& input, Context& context) const final {
    return norm_(input, context);
  }
  const VocabularyHead& head() const final { return head_; }

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
