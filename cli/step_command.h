// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "cohort/step/checker.h"
#include "cohort/step/cost_table.h"
#include "cohort/step/schedule.h"
#include "cohort/step/simulator.h"
#include "recipes/recipe_list.h"

namespace cohort::cli {

// The flags of `cohort step`, as given.
struct StepArgs {
  std::string recipe;
  std::string from;         // a CSV file instead of a recipe
  std::string ranks = "1";  // -n
  std::string layout;
  bool exact = false;
  std::vector<std::string> set;            // key=value
  std::string config;                      // a YAML file
  std::string costs;                       // a CSV table of costs
  std::string links;                       // the name of a link profile
  int measure = 0;                         // steps to run; 0: starts no rank
  std::vector<int64_t> costs_at;           // batches at which costs are measured
  std::string backend = "auto";            // for the ranks that measure
  std::string svg, trace, csv, costs_out;  // files to write
  bool json = false;
};

struct StepSetting;  // step_setting.h

// A step with all that is said of it.
struct StepView {
  std::string name;    // the recipe, or the file
  std::string layout;  // "dp=4,shard=3"
  Schedule schedule;
  CheckReport report;
  CostTable costs;
  std::string costs_from;  // where they come from, in words
  // How fast places are where costs are those of the fastest one; empty: all alike.
  std::vector<double> speeds;
  Simulation simulation;
  double samples = 0;         // in the largest slice; 0: as the costs say
  StepTimes measured;         // by role; may be empty
  int64_t measured_peak = 0;  // bytes; 0: not known
};

// Simulates it, with the costs of args.costs where those are given.
void complete(const StepArgs& args, StepView& view);

// Generates or reads a step, checks it, and foretells what it costs. Needs no data and
// starts no rank. ConfigError when it is refused.
StepView view_step(const StepArgs& args, const RecipeList& recipes);
StepView view_step(const StepArgs& args, const StepSetting& setting);

// The picture of `--svg`.
std::string step_picture(const StepView& view);

std::string format_step(const StepView& view);
std::string step_json(const StepView& view);

// Predicted beside measured: the step, each kind of action, memory.
std::string format_measured(const StepView& view);

// Shows the step and writes the files that were asked for. Returns the exit code. With
// args.measure it starts ranks, so it must be the first thing a process does.
int run_step(const StepArgs& args, const RecipeList& recipes, std::ostream& out);

// What --help adds to the list of flags, below the recipes.
inline constexpr const char* kStepHelp =
    R"(
Needs no data and starts no rank, unless --measure is given. A step that breaks a rule is refused in one line, with
exit code 2. Keys that shape a step: batch, slices, precision, dtype.*, optim.name,
optim.clip, elastic, nan, step.*, memory.limit.

Examples:
  cohort step fashion-mnist -n 4 --layout shard=3 --svg step.svg
  cohort step mlp -n 1024 --layout shard=3 --set batch=4096 --set memory.limit=8G
  cohort step fashion-mnist -n 2 --csv step.csv
  cohort step --from step.csv --trace step.json
  cohort step fashion-mnist -n 2 --measure 20 --costs-out costs.csv --svg step.svg
  cohort step fashion-mnist -n 2 --costs costs.csv --set batch=512
  cohort step mlp -n 64 --layout shard=3 --links nvlink4-ndr --set batch=4096
)";

}  // namespace cohort::cli
