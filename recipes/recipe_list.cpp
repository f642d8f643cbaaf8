// SPDX-License-Identifier: Apache-2.0
#include "recipes/recipe_list.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/core/nearest.h"
#include "recipes/cifar_resnet50v2.h"
#include "recipes/fashion_mnist_recipes.h"
#include "recipes/language_recipes.h"

namespace cohort {
namespace {

// What a shell takes as one word, and no flag.
bool is_name(std::string_view name) {
  const auto is_legal = [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.';
  };
  return !name.empty() && name[0] != '-' &&
         std::all_of(name.begin(), name.end(), is_legal);
}

}  // namespace

void RecipeList::add(Entry recipe) {
  if (!recipe) throw ConfigError("[recipes] a recipe that is null");
  const std::string name(recipe->name());
  if (!is_name(name))
    throw ConfigError(text("[recipes] the name '", name,
                           "'; legal: letters, digits, '-', '_' and '.'"));
  for (const auto& other : recipes_)
    if (other->name() == name)
      throw ConfigError(
          text("[recipes] '", name, "' is the name of two recipes; taken: ", names()));
  recipe->defaults();  // what is wrong with its keys is said before any command runs
  recipes_.push_back(std::move(recipe));
}

std::string RecipeList::names() const {
  std::string list;
  for (const auto& recipe : recipes_)
    list += (list.empty() ? "" : ", ") + std::string(recipe->name());
  return list;
}

const Recipe& RecipeList::find(std::string_view name) const {
  std::vector<std::string> legal;
  for (const auto& recipe : recipes_) {
    if (recipe->name() == name) return *recipe;
    legal.emplace_back(recipe->name());
  }
  throw ConfigError(text("[recipes] unknown recipe '", name,
                         "'; nearest: ", nearest(name, legal), "; legal: ", names()));
}

void RecipeList::require_continuation(std::string_view who, const Recipe& recipe,
                                      const Config& config) const {
  const std::string why = recipe.why_no_continuation(config);
  if (why.empty()) return;
  std::string legal;
  for (const auto& other : recipes_)
    if (other->why_no_continuation(other->defaults()).empty())
      legal += (legal.empty() ? "" : ", ") + std::string(other->name());
  throw ConfigError(
      text(who, ": ", recipe.name(), " ", why, "; legal: ", legal, ", on text"));
}

RecipeList built_in_recipes() {
  RecipeList all;
  all.add(std::make_shared<CnnRecipe>());
  all.add(std::make_shared<MlpRecipe>());
  all.add(std::make_shared<CifarResNet50V2Recipe>());
  all.add(std::make_shared<GptRecipe>(/*tiny=*/false));
  all.add(std::make_shared<GptRecipe>(/*tiny=*/true));
  all.add(std::make_shared<LlamaTinyRecipe>());
  all.add(std::make_shared<BertRecipe>(/*tiny=*/false));
  all.add(std::make_shared<BertRecipe>(/*tiny=*/true));
  return all;
}

}  // namespace cohort
