// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/block.h"
#include "cohort/data/synthetic.h"
#include "cohort/data/token_dataset.h"
#include "cohort/layers.h"
#include "cohort/nn/language_models.h"
#include "cohort/nn/models.h"

namespace cohort::threads {

// What a run of threads trains, in milliseconds.
enum class Model {
  kMlp,
  kCalling,  // blocks communicate inside, over data-parallel ranks: it is not exact
  kTied,     // the first and the last block have one weight
  kGpt,      // both, and tensors that can be cut
};
inline constexpr const char* kModelNames[] = {"", "_calls", "_tied", "_gpt"};

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

constexpr int64_t kGptTokens = 4, kGptVocabulary = 11;

// A block at least for each stage.
inline Chain make_chain(Model model, int stages, const TensorPart& part) {
  const int64_t between = std::max(1, stages - 2);
  switch (model) {
    case Model::kCalling:
      return make_calling_chain();
    case Model::kTied:
      return make_tied_chain(std::max(2, stages));
    case Model::kGpt:
      return make_gpt({.vocab = kGptVocabulary,
                       .context = kGptTokens,
                       .width = 8,
                       .depth = between,
                       .heads = 2,
                       .dropout = 0.1},
                      {.seed = 5, .tensor = part});
    default:
      return make_mlp(
          {.inputs = 12, .width = 16, .depth = std::max(1, stages - 1), .dropout = 0.2},
          {.seed = 5});
  }
}

inline std::unique_ptr<Dataset> make_data(Model model, int64_t samples) {
  if (model != Model::kGpt) return make_synthetic({.size = samples, .shape = {12}});
  return make_token_dataset(synthetic_passages({.passages = samples,
                                                .length = kGptTokens + 1,
                                                .vocabulary = kGptVocabulary}),
                            {.length = kGptTokens});
}

}  // namespace cohort::threads
