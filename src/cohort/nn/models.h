// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/nn/layers.h"
#include "cohort/step/block.h"

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

// ResNet with bottleneck blocks, as torchvision's resnet50: same names, same shapes.
struct ResNetOptions {
  std::vector<int64_t> depths = {3, 4, 6, 3};
  int64_t width = 64;
  int64_t classes = 1000;
};
Chain make_resnet(const ResNetOptions& model, const LayerOptions& layers);

}  // namespace cohort
