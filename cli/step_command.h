// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "cohort/step/checker.h"
#include "cohort/step/cost_table.h"
#include "cohort/step/schedule.h"
#include "cohort/step/simulator.h"

namespace cohort::cli {

// The flags of `cohort step`, as given.
struct StepArgs {
  std::string recipe;
  std::string from;         // a CSV file instead of a recipe
  std::string ranks = "1";  // -n
  std::string layout;
  bool exact = false;
  std::vector<std::string> set;  // key=value
  std::string config;            // a YAML file
  std::string costs;             // a CSV table of costs
  std::string svg, trace, csv;   // files to write
  bool json = false;
};

// A step with all that is said of it.
struct StepView {
  std::string name;    // the recipe, or the file
  std::string layout;  // "dp=4,shard=3"
  Schedule schedule;
  CheckReport report;
  CostTable costs;
  std::string costs_from;  // where they come from, in words
  Simulation simulation;
  StepTimes measured;  // of the file; may be empty
};

// Generates or reads a step, checks it, and foretells what it costs. Needs no data and
// starts no rank. ConfigError when it is refused.
StepView view_step(const StepArgs& args);

std::string format_step(const StepView& view);
std::string step_json(const StepView& view);

// Shows the step and writes the files that were asked for. Returns the exit code.
int run_step(const StepArgs& args, std::ostream& out);

}  // namespace cohort::cli
