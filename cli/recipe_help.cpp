// SPDX-License-Identifier: Apache-2.0
#include "cli/recipe_help.h"

#include <algorithm>

#include "cohort/config.h"
#include "cohort/config/key_row.h"
#include "cohort/core/error.h"
#include "cohort/core/table.h"

namespace cohort::cli {
namespace {

constexpr const char* kKeys = "\nKeys for --set and --config:\n";

std::string line_of(const Recipe& recipe) {
  return text("  ", recipe.name(), "  ", recipe.help(), "\n");
}

KeyValue value_of(const Config& config, const Key& key) {
  switch (key.kind) {
    case KeyKind::kBool:
      return config.get_bool(key.name);
    case KeyKind::kInt:
      return config.get_int(key.name);
    case KeyKind::kFloat:
      return config.get_float(key.name);
    default:
      return config.get_string(key.name);
  }
}

std::string keys_of(const Recipe& recipe) {
  const Config config = recipe.defaults();
  Table rows;
  for (const Key& key : config.keys().all())
    rows.push_back(key_row(key, value_of(config, key)));
  return format_table(rows);
}

}  // namespace

std::string recipe_help(const RecipeList& recipes, const std::string& chosen,
                        const char* more) {
  const auto& all = recipes.all();
  const auto one = std::ranges::find_if(
      all, [&](const auto& recipe) { return recipe->name() == chosen; });
  if (one != all.end())
    return text("Recipe:\n", line_of(**one), kKeys, keys_of(**one), more);
  const Keys common = common_keys();
  std::string names, own_keys;
  for (const auto& recipe : all) {
    names += line_of(*recipe);
    const Keys own = recipe->defaults().keys().without(common);
    if (!own.all().empty())
      own_keys += text("\nKeys of ", recipe->name(), ":\n", own.describe());
  }
  return text("Recipes (RECIPE --help shows all keys of one, with its defaults):\n",
              names, kKeys, common.describe(), own_keys, more);
}

}  // namespace cohort::cli
