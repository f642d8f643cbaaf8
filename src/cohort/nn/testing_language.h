// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "cohort/nn/testing_chain.h"

namespace cohort::test {

// Fields of a batch of sequences.
struct Text {
  Tensor tokens, target;
  Tensor segments = {};

  // Each target is the next token, the last one's some other.
  static Text of(int64_t samples, int64_t length, int64_t vocab) {
    const Tensor all =
        noise({samples, length + 1}, 7).add(1).mul(vocab / 2.0).floor().to(at::kLong);
    return {all.narrow(1, 0, length), all.narrow(1, 1, length)};
  }
  const Tensor& field(const std::string& name) const {
    if (name == "tokens") return tokens;
    return name == "target" ? target : segments;
  }
};

// What the last block gives.
inline Values values_of(const Chain& chain, const Text& text, Context context = {}) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < text.tokens.size(0); ++i) ids.push_back(100 + i);
  context.sample_ids = ids;
  Values values;
  for (const auto& block : chain.blocks) {
    for (const auto& field : block->fields()) values.push_back(text.field(field));
    values = block->forward(values, context);
  }
  return values;
}

inline WeightedLoss loss_of(const Chain& chain, const Text& text,
                            const Context& context = {}) {
  return chain.loss(values_of(chain, text, context), {});
}

}  // namespace cohort::test
