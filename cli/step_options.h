// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "cohort/config.h"
#include "cohort/engine/step_runner.h"
#include "cohort/recipe.h"
#include "cohort/step/checker.h"
#include "cohort/step/cost_table.h"
#include "cohort/step/generator.h"
#include "cohort/update_rule.h"

namespace cohort::cli {

// float32, bf16 or fp16; `otherwise` for any other name.
at::ScalarType parse_dtype(const std::string& name, at::ScalarType otherwise);

// How the keys of a run say that its step is made, but for what blocks cost. `exact` is
// the flag; slices are those of the key, or with --exact 8, or 0: one per data-parallel
// rank.
GeneratorOptions step_options(const Config& config, bool exact);

// A table of costs. ConfigError, which names the file, for what is none.
CostTable read_costs(const std::string& path);

// Seconds of each block, forward and backward, in the table that pipeline.costs names;
// none without the key. Read once for each run, so that all its
// ranks cut alike. ConfigError for a file that has no blocks, and with a cut by hand.
std::vector<double> block_seconds(const Config& config);

// ConfigError, which names the file, unless those are the seconds of so many blocks, or
// none.
void require_seconds_of(int blocks, std::span<const double> seconds,
                        const Config& config);

// The rule of an update, which may be the recipe's own, and how the step is run.
UpdateOptions update_options(const Recipe& recipe, const Config& config);
ExecutorOptions executor_options(const Config& config);

// A recipe's keys, changed as a file (empty: none) and then --set say.
void take_settings(const std::string& file, const std::vector<std::string>& set,
                   Config& config);

// What memory.limit and elastic ask of it.
CheckOptions check_options(const Config& config);

}  // namespace cohort::cli
