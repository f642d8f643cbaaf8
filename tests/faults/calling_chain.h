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

}  // namespace cohort::threads
