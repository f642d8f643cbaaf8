// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/block.h"
#include "cohort/layers.h"

namespace cohort {

// The CNN of many a course: two 3x3 convolutions with pooling, two linear layers.
// For images of 1 x 28 x 28. Parameters c1, c2, f1, f2.
struct CnnOptions {
  int64_t classes = 10;
  int64_t width = 32;  // filters of the first convolution
};
Chain make_cnn(const CnnOptions& model, const LayerOptions& layers);

// Linear layers of one width, without activation: nothing but weights, so that
// communication is all that can be slow. Its loss is the mean square of the output.
struct LinearStackOptions {
  int64_t width = 2048;
  int64_t depth = 6;
};
Chain make_linear_stack(const LinearStackOptions& model, const LayerOptions& layers);

// A chain of `depth` blocks Linear, ReLU, Dropout and a last Linear. Inputs of any
// shape are flattened. Names are those of torch.nn.Sequential(Linear, ReLU, Dropout,
// ..., Linear): 0.weight, 0.bias, 3.weight, ..., the last layer at 3 * depth. The masks
// of the dropout of block k are keyed by its place there: 2, 5, ...
struct MlpOptions {
  int64_t inputs = 784;
  int64_t width = 512;
  int64_t depth = 2;
  int64_t classes = 10;
  double dropout = 0.2;
};
Chain make_mlp(const MlpOptions& model, const LayerOptions& layers);

enum class ResNetBlock {
  kBasic,          // two 3x3 convolutions: ResNet-18 and 34
  kBottleneck,     // 1x1, 3x3, 1x1: ResNet-50
  kPreActivation,  // bottleneck with norm and ReLU before each convolution: 50V2
};

// ResNets (He et al. 2016). kBasic and kBottleneck have torchvision's names and shapes:
// conv1, bn1, layerK.i.{conv,bn}J, layerK.i.downsample.{0,1}, fc.
//
// kPreActivation is He et al. 2016b, "Identity mappings": the stem is a convolution
// without norm; a block is x + conv3(a(bn3, conv2(a(bn2, conv1(a(bn1, x)))))) with
// a(bn, y) = relu(bn(y)); where shape or stride changes, the shortcut is
// layerK.i.downsample.0, a 1x1 convolution of a(bn1, x), without norm; behind the last
// block come norm `bn`, ReLU, mean, fc. No convolution has a bias, and the stride of a
// stage is in conv2 of its first block, both as in the other two. (Keras' ResNet50V2
// has the same blocks with biases on conv1, conv3 and shortcuts, and its strides in the
// last block of a stage.)
struct ResNetOptions {
  std::vector<int64_t> depths = {3, 4, 6, 3};  // blocks per stage; 18: {2, 2, 2, 2}
  int64_t width = 64;                          // in the first stage
  int64_t classes = 1000;
  ResNetBlock block = ResNetBlock::kBottleneck;
  // For images of 32 x 32 pixels: a stem of 3x3 and stride 1, without pooling.
  bool small_images = false;
};
Chain make_resnet(const ResNetOptions& model, const LayerOptions& layers);

// resnet18, resnet50 and resnet50v2. ConfigError with the nearest for another name.
ResNetOptions resnet_options(std::string_view name);
std::vector<std::string> resnet_names();

}  // namespace cohort
