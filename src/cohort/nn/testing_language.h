// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "cohort/nn/logits_block.h"
#include "cohort/nn/testing_chain.h"

namespace cohort::test {

// Fields of a batch of sequences.
struct Text {
  Tensor tokens, target;
  Tensor segments = {};
  Tensor places = {};

  // Each target is the next token, the last one's some other.
  static Text of(int64_t samples, int64_t length, int64_t vocab) {
    const Tensor all =
        noise({samples, length + 1}, 7).add(1).mul(vocab / 2.0).floor().to(at::kLong);
    return {all.narrow(1, 0, length), all.narrow(1, 1, length)};
  }
  const Tensor& field(const std::string& name) const {
    if (name == "tokens") return tokens;
    if (name == "places") return places;
    return name == "target" ? target : segments;
  }
};

// What the last block gives, or another in its place.
inline Values values_of(const Chain& chain, const Text& text, Context context = {},
                        Block* last = nullptr) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < text.tokens.size(0); ++i) ids.push_back(100 + i);
  context.sample_ids = ids;
  Values values;
  for (size_t b = 0; b < chain.blocks.size(); ++b) {
    const bool other = last && b + 1 == chain.blocks.size();
    Block& block = other ? *last : *chain.blocks[b];
    for (const auto& field : block.fields()) values.push_back(text.field(field));
    values = block.forward(values, context);
  }
  return values;
}

// (samples, tokens, vocabulary).
inline Tensor logits_of(const Chain& chain, Text text, const Context& context = {}) {
  const int64_t tokens = text.tokens.size(1);
  text.places = at::arange(tokens).expand({text.tokens.size(0), tokens});
  const auto last = make_logits_block(chain, tokens);
  return values_of(chain, text, context, last.get())[0];
}

inline WeightedLoss loss_of(const Chain& chain, const Text& text,
                            const Context& context = {}) {
  return chain.loss(values_of(chain, text, context), {});
}

}  // namespace cohort::test
