// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "cohort/config/config.h"
#include "cohort/step/tensor_spec.h"
#include "recipes/recipe.h"

namespace cohort::cli {

// What is known of a recipe's model before anybody makes it.
struct ModelOutline {
  int blocks = 0;
  std::vector<TensorSpec> trained, frozen, buffers;
};

// Found out in a process of its own: making a chain may run kernels, and whoever is to
// start ranks must not have run any. Empty if it cannot be made: the ranks will say
// why.
std::optional<ModelOutline> outline_of(const Recipe& recipe, const Config& config);

// ConfigError if a key names a block that the chain does not have, or it has no block
// for each of so many stages of a pipeline.
void require_blocks(const Recipe& recipe, const Config& config, int stages);

}  // namespace cohort::cli
