// SPDX-License-Identifier: Apache-2.0
#include "cli/model_counts.h"

#include "cohort/nn/without_memory.h"
#include "recipes/checked_recipe.h"

namespace cohort::cli {

std::optional<std::vector<BlockCount>> count_model(const Recipe& recipe,
                                                   const Config& config,
                                                   const TensorPart& part,
                                                   const Dataset& data) {
  const ModelsWithoutMemory guard;
  return count_blocks(checked_chain(recipe, config, part), data);
}

}  // namespace cohort::cli
