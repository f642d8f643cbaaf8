// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/recipe.h"

namespace cohort {

// ResNet-50V2 with a stem for small images on CIFAR-10, SGD with Nesterov momentum and
// a cosine after five epochs of warm-up:
//   cohort train cifar-resnet50v2 -n 2 --set data.dir=cifar-10-batches-bin
// model.width is that of the first stage, model.depth the blocks of each of the four
// stages (0: 3, 4, 6, 3); 8 and 1 make a small one of the same form. model.name makes
// torchvision's resnet18 and resnet50 instead, with model.stem=large to the last shape.
class CifarResNet50V2Recipe final : public Recipe {
 public:
  std::string_view name() const override { return "cifar-resnet50v2"; }
  std::string_view help() const override;
  Config defaults() const override;
  Chain make_chain(const Config& config, const TensorPart& part) const override;
  std::unique_ptr<DataLoading> load(const Config& config, bool reader) const override;
};

}  // namespace cohort
