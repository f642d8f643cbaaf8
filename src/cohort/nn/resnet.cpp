// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "cohort/core/error.h"
#include "cohort/core/nearest.h"
#include "cohort/core/parse.h"
#include "cohort/nn/models.h"
#include "cohort/nn/resnet_blocks.h"

namespace cohort {
namespace {

std::unique_ptr<Block> make_stem(const ResNetOptions& model,
                                 const LayerOptions& layers) {
  const bool small = model.small_images;
  const ConvOptions shape{.kernel = small ? 3 : 7,
                          .stride = small ? 1 : 2,
                          .padding = small ? 1 : 3,
                          .bias = false};
  TensorLists tensors;
  const Conv2d conv(tensors, "conv1", 3, model.width, shape, layers);
  std::optional<BatchNorm2d> norm;
  if (model.block != ResNetBlock::kPreActivation)
    norm.emplace(tensors, "bn1", model.width, layers);
  const auto format = layers.channels_last ? at::MemoryFormat::ChannelsLast
                                           : at::MemoryFormat::Contiguous;
  return std::make_unique<FunctionBlock>(
      "stem", std::move(tensors),
      [=](const Tensor& x, Context& context) {
        Tensor y = conv(x.contiguous(format));
        if (norm) y = (*norm)(y, context).relu_();
        return small ? y : at::max_pool2d(y, 3, 2, 1);
      },
      std::vector<std::string>{"input"});
}

std::unique_ptr<Block> make_head(int64_t in, const ResNetOptions& model,
                                 const LayerOptions& layers) {
  TensorLists tensors;
  std::optional<BatchNorm2d> norm;
  if (model.block == ResNetBlock::kPreActivation)
    norm.emplace(tensors, "bn", in, layers);
  const Linear linear(tensors, "fc", in, model.classes, layers);
  return std::make_unique<FunctionBlock>(
      "fc", std::move(tensors), [=](const Tensor& x, Context& context) {
        const Tensor y = norm ? (*norm)(x, context).relu_() : x;
        return linear(at::adaptive_avg_pool2d(y, {1, 1}).flatten(1), context);
      });
}

}  // namespace

std::vector<std::string> resnet_names() {
  return {"resnet50v2", "resnet50", "resnet18"};
}

ResNetOptions resnet_options(std::string_view name) {
  if (name == "resnet18") return {.depths = {2, 2, 2, 2}, .block = ResNetBlock::kBasic};
  if (name == "resnet50") return {.block = ResNetBlock::kBottleneck};
  if (name == "resnet50v2") return {.block = ResNetBlock::kPreActivation};
  const auto legal = resnet_names();
  throw ConfigError(text("[nn] unknown model '", name, "'; nearest: ",
                         nearest(name, legal), "; legal: ", join(legal, ", ")));
}

Chain make_resnet(const ResNetOptions& model, const LayerOptions& layers) {
  Chain chain{.blocks = {}, .loss = classifier_loss()};
  chain.blocks.push_back(make_stem(model, layers));
  int64_t in = model.width;
  for (size_t stage = 0; stage < model.depths.size(); ++stage) {
    const int64_t width = model.width << stage;
    for (int64_t i = 0; i < model.depths[stage]; ++i) {
      const std::string name =
          "layer" + std::to_string(stage + 1) + "." + std::to_string(i);
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      chain.blocks.push_back(make_residual_block(
          model.block, {.name = name, .in = in, .width = width, .stride = stride},
          layers));
      in = width * expansion_of(model.block);
    }
  }
  chain.blocks.push_back(make_head(in, model, layers));
  return chain;
}

}  // namespace cohort
