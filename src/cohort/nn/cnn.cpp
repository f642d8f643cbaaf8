// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/models.h"

namespace cohort {
namespace {

std::unique_ptr<Block> conv_block(const std::string& name, int64_t in, int64_t out,
                                  const LayerOptions& layers,
                                  std::vector<std::string> fields = {}) {
  TensorLists tensors;
  const Conv2d conv(tensors, name, in, out, {.kernel = 3, .padding = 1}, layers);
  const auto format = layers.channels_last ? at::MemoryFormat::ChannelsLast
                                           : at::MemoryFormat::Contiguous;
  return std::make_unique<FunctionBlock>(
      name, std::move(tensors),
      [conv, format](const Tensor& x, Context&) {
        return at::max_pool2d(conv(x.contiguous(format)).relu_(), 2);
      },
      std::move(fields));
}

}  // namespace

Chain make_cnn(const CnnOptions& model, const LayerOptions& layers) {
  const int64_t width = model.width;
  Chain chain{.blocks = {}, .loss = classifier_loss()};
  chain.blocks.push_back(conv_block("c1", 1, width, layers, {"input"}));
  chain.blocks.push_back(conv_block("c2", width, 2 * width, layers));

  TensorLists hidden_tensors;
  const Linear hidden(hidden_tensors, "f1", 2 * width * 7 * 7, 4 * width, layers);
  chain.blocks.push_back(std::make_unique<FunctionBlock>(
      "f1", std::move(hidden_tensors), [hidden](const Tensor& x, Context& context) {
        return hidden(x.contiguous().flatten(1), context).relu();
      }));

  TensorLists head_tensors;
  const Linear head(head_tensors, "f2", 4 * width, model.classes, layers);
  chain.blocks.push_back(std::make_unique<FunctionBlock>(
      "f2", std::move(head_tensors),
      [head](const Tensor& x, Context& context) { return head(x, context); }));
  return chain;
}

Chain make_linear_stack(const LinearStackOptions& model, const LayerOptions& layers) {
  Chain chain;
  for (int64_t i = 0; i < model.depth; ++i) {
    TensorLists tensors;
    const std::string name = std::to_string(i);
    const Linear linear(tensors, name, model.width, model.width, layers);
    chain.blocks.push_back(std::make_unique<FunctionBlock>(
        name, std::move(tensors),
        [linear](const Tensor& x, Context& context) { return linear(x, context); },
        fields_of_layer(i)));
  }
  chain.loss.function = [](const Values& outputs, const Values&) {
    const Tensor y = outputs.at(0).to(at::kFloat);
    return WeightedLoss{.sum = y.square().sum() / y.size(1),
                        .count = static_cast<double>(y.size(0))};
  };
  return chain;
}

}  // namespace cohort
