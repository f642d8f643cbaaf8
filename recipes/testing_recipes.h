// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recipes/recipe_list.h"

namespace cohort::test {

// For tests, which keep references to recipes.
inline const RecipeList& recipes() {
  static const RecipeList all = built_in_recipes();
  return all;
}

inline const Recipe& find_recipe(std::string_view name) { return recipes().find(name); }

}  // namespace cohort::test
