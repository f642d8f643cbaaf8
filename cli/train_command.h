// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/launch_command.h"
#include "recipes/recipe_list.h"

namespace cohort::cli {

// The flags of `cohort train`, as given.
struct TrainArgs {
  std::string recipe;
  std::string ranks;  // -n; empty: one, or a launcher's variables decide
  std::string nodes = "1";
  std::string rdzv, rdzv_token;
  int max_restarts = -1;  // not given: 100 in an elastic run, else 0
  double grace_s = 3;
  std::string backend = "auto";
  std::string device = "cpu";
  std::string layout;
  bool exact = false;
  int64_t max_steps = 0;
  std::vector<std::string> set;  // key=value
  std::string config;            // a YAML file
  std::string out;
  bool resume = false;
  bool json = false;
  bool quiet = false;
  std::string save_initial, save_final, sample_log;
  std::optional<std::string> sample;  // a text to be continued
};

// Starts the ranks, or is one of them where a launcher's variables say so. Returns
// the exit code.
int run_train(const TrainArgs& args, const RecipeList& recipes);

}  // namespace cohort::cli
