// SPDX-License-Identifier: Apache-2.0
#include "cli/recipe_help.h"

#include "cohort/config.h"
#include "cohort/core/error.h"

namespace cohort::cli {

std::string recipe_help(const RecipeList& recipes, const char* more) {
  const Keys common = common_keys();
  std::string names, own_keys;
  for (const auto& recipe : recipes.all()) {
    names += text("  ", recipe->name(), "  ", recipe->help(), "\n");
    const Keys own = recipe->defaults().keys().without(common);
    if (!own.all().empty())
      own_keys += text("\nKeys of ", recipe->name(), ":\n", own.describe());
  }
  return text("Recipes:\n", names, "\nKeys for --set and --config:\n",
              common.describe(), own_keys, more);
}

}  // namespace cohort::cli
