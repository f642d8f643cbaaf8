// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/recipe.h"

namespace cohort {

// A multi-layer perceptron with dropout on Fashion-MNIST, SGD with momentum:
//   cohort train mlp -n 2
// model.depth hidden layers of model.width, model.dropout of their outputs dropped.
class MlpRecipe final : public Recipe {
 public:
  std::string_view name() const override { return "mlp"; }
  std::string_view help() const override;
  Config defaults() const override;
  Chain make_chain(const Config& config, const TensorPart& part) const override;
  std::unique_ptr<DataLoading> load(const Config& config, bool reader) const override;
};

}  // namespace cohort
