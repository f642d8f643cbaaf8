// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "recipes/recipe_list.h"

namespace cohort::cli {

// A line for each recipe.
std::string recipe_list(const RecipeList& recipes);

// What `cohort train --help` adds to the list of flags: recipes, keys, examples, exit
// codes.
std::string train_help(const RecipeList& recipes);

}  // namespace cohort::cli
