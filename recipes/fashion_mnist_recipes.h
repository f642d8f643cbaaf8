// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/recipe.h"

namespace cohort {

// What models on Fashion-MNIST share: the data (data.dir, or samples of the same form),
// and SGD with momentum.
class FashionMnistRecipe : public Recipe {
 public:
  std::unique_ptr<DataLoading> load(const Config& config, bool reader) const final;

 protected:
  Config defaults_of_width(std::string_view width) const;
};

// The CNN of two convolutions:
//   cohort train fashion-mnist -n 2
// reaches 91 % test accuracy within 10 epochs.
class CnnRecipe final : public FashionMnistRecipe {
 public:
  std::string_view name() const override { return "fashion-mnist"; }
  std::string_view help() const override;
  Config defaults() const override { return defaults_of_width("32"); }
  Chain make_chain(const Config& config, const TensorPart& part) const override;
};

// A multi-layer perceptron with dropout:
//   cohort train mlp -n 2
// model.depth hidden layers of model.width, model.dropout of their outputs dropped.
class MlpRecipe final : public FashionMnistRecipe {
 public:
  std::string_view name() const override { return "mlp"; }
  std::string_view help() const override;
  Config defaults() const override;
  Chain make_chain(const Config& config, const TensorPart& part) const override;
};

}  // namespace cohort
