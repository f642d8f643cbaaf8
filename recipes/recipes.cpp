// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/nearest.h"
#include "recipes/cifar_resnet50v2.h"
#include "recipes/fashion_mnist.h"
#include "recipes/language_models.h"
#include "recipes/mlp.h"
#include "recipes/recipe.h"

namespace cohort {

std::span<const Recipe* const> all_recipes() {
  static const FashionMnistRecipe fashion_mnist;
  static const MlpRecipe mlp;
  static const CifarResNet50V2Recipe cifar_resnet50v2;
  static const GptRecipe gpt(/*tiny=*/false), gpt_tiny(/*tiny=*/true);
  static const LlamaTinyRecipe llama_tiny;
  static const BertRecipe bert(/*tiny=*/false), bert_tiny(/*tiny=*/true);
  static const std::array<const Recipe*, 8> all = {
      &fashion_mnist, &mlp,  &cifar_resnet50v2, &gpt, &gpt_tiny,
      &llama_tiny,    &bert, &bert_tiny};
  return all;
}

void require_whole_layers(const Recipe& recipe, const TensorPart& part) {
  if (part.size > 1)
    throw ConfigError(text("[recipes] layout tp=", part.size, ": the layers of ",
                           recipe.name(), " cannot be cut; legal: tp=1"));
}

void require_continuation(std::string_view who, const Recipe& recipe,
                          const Config& config) {
  const std::string why = recipe.why_no_continuation(config);
  if (why.empty()) return;
  std::string legal;
  for (const Recipe* other : all_recipes())
    if (other->why_no_continuation(other->defaults()).empty())
      legal += (legal.empty() ? "" : ", ") + std::string(other->name());
  throw ConfigError(
      text(who, ": ", recipe.name(), " ", why, "; legal: ", legal, ", on text"));
}

const Recipe& find_recipe(std::string_view name) {
  std::vector<std::string> legal;
  std::string list;
  for (const Recipe* recipe : all_recipes()) {
    if (recipe->name() == name) return *recipe;
    legal.emplace_back(recipe->name());
    list += (list.empty() ? "" : ", ") + legal.back();
  }
  throw ConfigError(text("[recipes] unknown recipe '", name,
                         "'; nearest: ", nearest(name, legal), "; legal: ", list));
}

}  // namespace cohort
