// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/step_setting.h"
#include "cohort/engine/block_count.h"
#include "cohort/step/cost_table.h"

namespace cohort::cli {

inline constexpr const char* kBlocksRunHere =
    "blocks run here on a few samples, in float32 with 1 thread";

// What the blocks of a step cost here, and where that is known from, in words.
struct BlockCosts {
  std::vector<BlockCost> blocks;
  std::string from;
};

// Runs one block of each form that is small enough, with memory for it alone; what
// others take follows from their FLOPs.
BlockCosts time_blocks(const StepSetting& setting, std::span<const BlockCount> counts,
                       const Dataset& data);

}  // namespace cohort::cli
