// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/step_command.h"
#include "cohort/config/config.h"
#include "cohort/engine/block_measure.h"
#include "cohort/engine/executor.h"
#include "cohort/optim/update_rule.h"
#include "cohort/step/generator.h"
#include "cohort/step/layout.h"
#include "recipes/recipe.h"

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
};

// ConfigError for what no step can be made of.
StepSetting setting_of(const StepArgs& args);

// The rule and the ways of an update that the keys name.
UpdateOptions update_options(const Config& config);
ExecutorOptions executor_options(const StepSetting& setting);

// The step at a batch, from what blocks need.
Schedule schedule_of(const StepSetting& setting, std::vector<BlockSpec> specs,
                     std::span<const BlockMeasure> measures, int64_t batch);

}  // namespace cohort::cli
