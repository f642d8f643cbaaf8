// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/model_counts.h"

#include "cohort/nn/without_memory.h"
#include "cohort/train/checked_recipe.h"

namespace cohort {

std::optional<std::vector<BlockCount>> count_model(const Recipe& recipe,
                                                   const Config& config,
                                                   const TensorPart& part,
                                                   const Dataset& data) {
  const ModelsWithoutMemory guard;
  return count_blocks(checked_chain(recipe, config, part), data);
}

}  // namespace cohort
