// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "cohort/nn/models.h"

namespace cohort {
namespace {

constexpr int64_t kExpansion = 4;

// He et al. 2016 with the stride in the 3x3 convolution, as torchvision has it.
class Bottleneck final : public LayerBlock {
 public:
  Bottleneck(const std::string& name, int64_t in, int64_t width, int64_t stride,
             const LayerOptions& layers)
      : LayerBlock(name),
        conv1_(tensors_, name + ".conv1", in, width, {.kernel = 1, .bias = false},
               layers),
        bn1_(tensors_, name + ".bn1", width),
        conv2_(tensors_, name + ".conv2", width, width,
               {.kernel = 3, .stride = stride, .padding = 1, .bias = false}, layers),
        bn2_(tensors_, name + ".bn2", width),
        conv3_(tensors_, name + ".conv3", width, width * kExpansion,
               {.kernel = 1, .bias = false}, layers),
        bn3_(tensors_, name + ".bn3", width * kExpansion) {
    if (stride == 1 && in == width * kExpansion) return;
    shortcut_.emplace(tensors_, name + ".downsample.0", in, width * kExpansion,
                      ConvOptions{.kernel = 1, .stride = stride, .bias = false},
                      layers);
    shortcut_norm_.emplace(tensors_, name + ".downsample.1", width * kExpansion);
  }

  Values forward(const Values& inputs, Context& context) override {
    const Tensor& x = inputs.at(0);
    Tensor y = bn1_(conv1_(x), context).relu_();
    y = bn2_(conv2_(y), context).relu_();
    y = bn3_(conv3_(y), context);
    const Tensor same = shortcut_ ? (*shortcut_norm_)((*shortcut_)(x), context) : x;
    return {y.add_(same).relu_()};
  }

 private:
  Conv2d conv1_;
  BatchNorm2d bn1_;
  Conv2d conv2_;
  BatchNorm2d bn2_;
  Conv2d conv3_;
  BatchNorm2d bn3_;
  std::optional<Conv2d> shortcut_;
  std::optional<BatchNorm2d> shortcut_norm_;
};

std::unique_ptr<Block> make_stem(int64_t width, const LayerOptions& layers) {
  TensorLists tensors;
  const Conv2d conv(tensors, "conv1", 3, width,
                    {.kernel = 7, .stride = 2, .padding = 3, .bias = false}, layers);
  const BatchNorm2d norm(tensors, "bn1", width);
  const auto format = layers.channels_last ? at::MemoryFormat::ChannelsLast
                                           : at::MemoryFormat::Contiguous;
  return std::make_unique<FunctionBlock>(
      "stem", std::move(tensors), [=](const Tensor& x, Context& context) {
        return at::max_pool2d(norm(conv(x.contiguous(format)), context).relu_(), 3, 2,
                              1);
      });
}

std::unique_ptr<Block> make_head(int64_t in, int64_t classes,
                                 const LayerOptions& layers) {
  TensorLists tensors;
  const Linear linear(tensors, "fc", in, classes, layers);
  return std::make_unique<FunctionBlock>(
      "fc", std::move(tensors), [linear](const Tensor& x, Context& context) {
        return linear(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1), context);
      });
}

}  // namespace

Chain make_resnet(const ResNetOptions& model, const LayerOptions& layers) {
  Chain chain{.blocks = {}, .loss = cross_entropy};
  chain.blocks.push_back(make_stem(model.width, layers));
  int64_t in = model.width;
  for (size_t stage = 0; stage < model.depths.size(); ++stage) {
    const int64_t width = model.width << stage;
    for (int64_t i = 0; i < model.depths[stage]; ++i) {
      const std::string name =
          "layer" + std::to_string(stage + 1) + "." + std::to_string(i);
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      chain.blocks.push_back(
          std::make_unique<Bottleneck>(name, in, width, stride, layers));
      in = width * kExpansion;
    }
  }
  chain.blocks.push_back(make_head(in, model.classes, layers));
  return chain;
}

}  // namespace cohort
