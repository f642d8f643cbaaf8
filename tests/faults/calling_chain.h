// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/nn/layers.h"
#include "cohort/step/block.h"

namespace cohort::threads {

// Two layers with a norm over all ranks between them: calls in forward and backward.
inline Chain make_calling_chain() {
  Chain chain{.blocks = {}, .loss = classifier_loss()};
  const LayerOptions layers{.seed = 5, .sync_batch_norm = true};
  TensorLists first, last;
  const Linear wide(first, "wide", 12, 16, layers);
  const BatchNorm2d norm(first, "norm", 16, layers);
  const Linear narrow(last, "narrow", 16, 10, layers);
  chain.blocks.push_back(std::make_unique<FunctionBlock>(
      "normal", std::move(first),
      [=](const Tensor& x, Context& context) {
        const Tensor y = wide(x, context).unsqueeze(2).unsqueeze(3);
        return norm(y, context).flatten(1).relu();
      },
      std::vector<std::string>{"input"}));
  chain.blocks.push_back(std::make_unique<FunctionBlock>(
      "narrow", std::move(last),
      [=](const Tensor& x, Context& context) { return narrow(x, context); }));
  return chain;
}

// Layers of which the first and the last have one weight, so that both ends of a
// pipeline keep it.
inline Chain make_tied_chain(int64_t layers) {
  constexpr int64_t kWide = 12;
  Chain chain{.blocks = {}, .loss = classifier_loss()};
  const LayerOptions options{.seed = 5};
  TensorLists first, last;
  const Linear ends(first, "ends", kWide, kWide, options);
  last.parameters = first.parameters;
  last.cuts = first.cuts;
  const auto add = [&](const std::string& name, TensorLists lists, const Linear& linear,
                       std::vector<std::string> fields = {}) {
    chain.blocks.push_back(std::make_unique<FunctionBlock>(
        name, std::move(lists),
        [=](const Tensor& x, Context& context) { return linear(x, context).sin(); },
        std::move(fields)));
  };
  add("first", std::move(first), ends, {"input"});
  for (int64_t i = 0; i + 2 < layers; ++i) {
    const std::string name = "layer" + std::to_string(i);
    TensorLists lists;
    const Linear linear(lists, name, kWide, kWide, options);
    add(name, std::move(lists), linear);
  }
  add("last", std::move(last), ends);
  return chain;
}

}  // namespace cohort::threads
