// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "recipes/recipe_list.h"

namespace cohort::cli {

// What `--help` of a command that takes a recipe adds to its flags: every recipe, the
// keys of all and those that only some have; and then `more`, which begins with an
// empty line. Where `chosen` is a recipe: that one, and all its keys with its own
// defaults.
std::string recipe_help(const RecipeList& recipes, const std::string& chosen,
                        const char* more);

}  // namespace cohort::cli
