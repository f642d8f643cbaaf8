// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "cohort/nn/models.h"

namespace cohort {

// One residual block of a ResNet.
struct ResidualShape {
  std::string name;  // layerK.i
  int64_t in = 64;
  int64_t width = 64;  // its stage's, before the expansion
  int64_t stride = 1;
};
std::unique_ptr<Block> make_residual_block(ResNetBlock kind, const ResidualShape& shape,
                                           const LayerOptions& layers);

// Channels that leave a block, over its width.
int64_t expansion_of(ResNetBlock kind);

}  // namespace cohort
