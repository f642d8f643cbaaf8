// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/recipe.h"

namespace cohort {

// The recipes of a program, by name.
class RecipeList {
 public:
  using Entry = std::shared_ptr<const Recipe>;

  // ConfigError for a name that is there already, or is no name, and for a recipe whose
  // own defaults are refused.
  void add(Entry recipe);

  const std::vector<Entry>& all() const { return recipes_; }
  // ConfigError with the nearest name for one that is not there.
  const Recipe& find(std::string_view name) const;
  // "fashion-mnist, mlp, ...".
  std::string names() const;

  // ConfigError unless the recipe's model continues texts. `who` asks: "[train]
  // --sample".
  void require_continuation(std::string_view who, const Recipe& recipe,
                            const Config& config) const;

 private:
  std::vector<Entry> recipes_;
};

// Those that come with the library.
RecipeList built_in_recipes();

}  // namespace cohort
