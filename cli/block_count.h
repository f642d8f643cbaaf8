// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "cohort/config/config.h"
#include "recipes/recipe.h"

namespace cohort::cli {

// Blocks of a recipe's chain, counted in a process of its own: making a chain runs
// kernels, and whoever is to start ranks must not have run any. Empty if it cannot be
// made: the ranks will say why.
std::optional<int> count_blocks(const Recipe& recipe, const Config& config);

// ConfigError if a key names a block that the chain does not have, or it has no block
// for each of so many stages of a pipeline.
void require_blocks(const Recipe& recipe, const Config& config, int stages);

}  // namespace cohort::cli
