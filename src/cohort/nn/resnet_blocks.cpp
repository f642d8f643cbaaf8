// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/resnet_blocks.h"

#include <optional>

#include "cohort/core/error.h"

namespace cohort {
namespace {

constexpr int64_t kExpansion = 4;

ConvOptions conv1x1(int64_t stride = 1) {
  return {.kernel = 1, .stride = stride, .bias = false};
}

ConvOptions conv3x3(int64_t stride = 1) {
  return {.kernel = 3, .stride = stride, .padding = 1, .bias = false};
}

// 1x1 convolution and norm where the shape changes, else the input itself.
class Shortcut {
 public:
  Shortcut(TensorLists& tensors, const ResidualShape& shape, int64_t out,
           const LayerOptions& layers) {
    if (shape.stride == 1 && shape.in == out) return;
    conv_.emplace(tensors, shape.name + ".downsample.0", shape.in, out,
                  conv1x1(shape.stride), layers);
    norm_.emplace(tensors, shape.name + ".downsample.1", out, layers);
  }

  Tensor operator()(const Tensor& x, Context& context) const {
    return conv_ ? (*norm_)((*conv_)(x), context) : x;
  }

 private:
  std::optional<Conv2d> conv_;
  std::optional<BatchNorm2d> norm_;
};

class Basic final : public LayerBlock {
 public:
  Basic(const ResidualShape& shape, const LayerOptions& layers)
      : LayerBlock(shape.name),
        conv1_(tensors_, shape.name + ".conv1", shape.in, shape.width,
               conv3x3(shape.stride), layers),
        bn1_(tensors_, shape.name + ".bn1", shape.width, layers),
        conv2_(tensors_, shape.name + ".conv2", shape.width, shape.width, conv3x3(),
               layers),
        bn2_(tensors_, shape.name + ".bn2", shape.width, layers),
        shortcut_(tensors_, shape, shape.width, layers) {}

  Values forward(const Values& inputs, Context& context) override {
    const Tensor& x = inputs.at(0);
    Tensor y = bn1_(conv1_(x), context).relu_();
    y = bn2_(conv2_(y), context);
    return {y.add_(shortcut_(x, context)).relu_()};
  }

 private:
  Conv2d conv1_;
  BatchNorm2d bn1_;
  Conv2d conv2_;
  BatchNorm2d bn2_;
  Shortcut shortcut_;
};

// With the stride in the 3x3 convolution, as torchvision has it.
class Bottleneck final : public LayerBlock {
 public:
  Bottleneck(const ResidualShape& shape, const LayerOptions& layers)
      : LayerBlock(shape.name),
        conv1_(tensors_, shape.name + ".conv1", shape.in, shape.width, conv1x1(),
               layers),
        bn1_(tensors_, shape.name + ".bn1", shape.width, layers),
        conv2_(tensors_, shape.name + ".conv2", shape.width, shape.width,
               conv3x3(shape.stride), layers),
        bn2_(tensors_, shape.name + ".bn2", shape.width, layers),
        conv3_(tensors_, shape.name + ".conv3", shape.width, shape.width * kExpansion,
               conv1x1(), layers),
        bn3_(tensors_, shape.name + ".bn3", shape.width * kExpansion, layers),
        shortcut_(tensors_, shape, shape.width * kExpansion, layers) {}

  Values forward(const Values& inputs, Context& context) override {
    const Tensor& x = inputs.at(0);
    Tensor y = bn1_(conv1_(x), context).relu_();
    y = bn2_(conv2_(y), context).relu_();
    y = bn3_(conv3_(y), context);
    return {y.add_(shortcut_(x, context)).relu_()};
  }

 private:
  Conv2d conv1_;
  BatchNorm2d bn1_;
  Conv2d conv2_;
  BatchNorm2d bn2_;
  Conv2d conv3_;
  BatchNorm2d bn3_;
  Shortcut shortcut_;
};

class PreActivation final : public LayerBlock {
 public:
  PreActivation(const ResidualShape& shape, const LayerOptions& layers)
      : LayerBlock(shape.name),
        bn1_(tensors_, shape.name + ".bn1", shape.in, layers),
        conv1_(tensors_, shape.name + ".conv1", shape.in, shape.width, conv1x1(),
               layers),
        bn2_(tensors_, shape.name + ".bn2", shape.width, layers),
        conv2_(tensors_, shape.name + ".conv2", shape.width, shape.width,
               conv3x3(shape.stride), layers),
        bn3_(tensors_, shape.name + ".bn3", shape.width, layers),
        conv3_(tensors_, shape.name + ".conv3", shape.width, shape.width * kExpansion,
               conv1x1(), layers) {
    const int64_t out = shape.width * kExpansion;
    if (shape.stride == 1 && shape.in == out) return;
    shortcut_.emplace(tensors_, shape.name + ".downsample.0", shape.in, out,
                      conv1x1(shape.stride), layers);
  }

  Values forward(const Values& inputs, Context& context) override {
    const Tensor& x = inputs.at(0);
    const Tensor active = bn1_(x, context).relu_();
    Tensor y = bn2_(conv1_(active), context).relu_();
    y = conv3_(bn3_(conv2_(y), context).relu_());
    return {y.add_(shortcut_ ? (*shortcut_)(active) : x)};
  }

 private:
  BatchNorm2d bn1_;
  Conv2d conv1_;
  BatchNorm2d bn2_;
  Conv2d conv2_;
  BatchNorm2d bn3_;
  Conv2d conv3_;
  std::optional<Conv2d> shortcut_;
};

}  // namespace

std::unique_ptr<Block> make_residual_block(ResNetBlock kind, const ResidualShape& shape,
                                           const LayerOptions& layers) {
  switch (kind) {
    case ResNetBlock::kBasic:
      return std::make_unique<Basic>(shape, layers);
    case ResNetBlock::kBottleneck:
      return std::make_unique<Bottleneck>(shape, layers);
    case ResNetBlock::kPreActivation:
      return std::make_unique<PreActivation>(shape, layers);
  }
  COHORT_CHECK(false, "no such block");
  return nullptr;
}

int64_t expansion_of(ResNetBlock kind) {
  return kind == ResNetBlock::kBasic ? 1 : kExpansion;
}

}  // namespace cohort
