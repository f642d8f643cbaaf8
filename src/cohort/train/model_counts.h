// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "cohort/config.h"
#include "cohort/data/dataset.h"
#include "cohort/engine/block_count.h"
#include "cohort/recipe.h"

namespace cohort {

// What the blocks of a rank's part of a recipe's model need, without making it. Nothing
// where that cannot be counted.
std::optional<std::vector<BlockCount>> count_model(const Recipe& recipe,
                                                   const Config& config,
                                                   const TensorPart& part,
                                                   const Dataset& data);

}  // namespace cohort
