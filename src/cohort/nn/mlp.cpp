// SPDX-License-Identifier: Apache-2.0
#include "cohort/layers.h"
#include "cohort/nn/models.h"

namespace cohort {
namespace {

std::unique_ptr<Block> hidden_block(int64_t place, int64_t in, const MlpOptions& model,
                                    const LayerOptions& layers) {
  const std::string name = std::to_string(place);
  TensorLists tensors;
  const Linear linear(tensors, name, in, model.width, layers);
  const Dropout dropout(std::to_string(place + 2), model.dropout);
  return std::make_unique<FunctionBlock>(
      name, std::move(tensors),
      [linear, dropout](const Tensor& x, Context& context) {
        return dropout(linear(x.flatten(1), context).relu(), context);
      },
      fields_of_layer(place));
}

}  // namespace

Chain make_mlp(const MlpOptions& model, const LayerOptions& layers) {
  Chain chain{.blocks = {}, .loss = classifier_loss()};
  int64_t in = model.inputs;
  for (int64_t i = 0; i < model.depth; ++i) {
    chain.blocks.push_back(hidden_block(3 * i, in, model, layers));
    in = model.width;
  }
  const std::string name = std::to_string(3 * model.depth);
  TensorLists tensors;
  const Linear head(tensors, name, in, model.classes, layers);
  chain.blocks.push_back(std::make_unique<FunctionBlock>(
      name, std::move(tensors),
      [head](const Tensor& x, Context& context) { return head(x.flatten(1), context); },
      fields_of_layer(3 * model.depth)));
  return chain;
}

}  // namespace cohort
