// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cli/step_command.h"
#include "cohort/config.h"
#include "cohort/engine/block_measure.h"
#include "cohort/step/generator.h"
#include "cohort/step/layout.h"
#include "recipes/recipe_list.h"

namespace cohort::cli {

// What the flags of `cohort step RECIPE` ask for. Making one runs no kernel.
struct StepSetting {
  const Recipe* recipe;
  Config config;
  Layout layout;
  GeneratorOptions options;

  int64_t batch() const { return config.get_int("batch"); }
  // Samples of the largest slice of a batch.
  double samples(int64_t batch) const;
  std::string layout_text() const;  // "dp=4,shard=3"
  Chain make_chain(int rank) const;
  Chain make_form() const;  // rank 0's, with parameters that are filled later
};

// ConfigError for what no step can be made of.
StepSetting setting_of(const StepArgs& args, const RecipeList& recipes);
// The same of keys that have their values already.
StepSetting setting_of(const StepArgs& args, const Recipe& recipe, Config config);

// The step at a batch, from what blocks need.
Schedule schedule_of(const StepSetting& setting, std::vector<BlockSpec> specs,
                     std::span<const BlockMeasure> measures, int64_t batch);

// Starts its ranks on this machine, over that backend, and returns their exit code.
// ConfigError before, if the model has not the blocks that the options speak of.
int launch_ranks(const StepSetting& setting, const std::string& backend, bool json,
                 const std::function<int()>& rank);

}  // namespace cohort::cli
