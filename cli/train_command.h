// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/launch_command.h"
#include "cohort/config.h"
#include "cohort/core/folder_lock.h"
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
  bool watch = false;
  std::string profile;
};

// A run with everything resolved: what every rank gets.
struct TrainPlan {
  TrainArgs args;
  const Recipe* recipe = nullptr;
  Config config;
  std::chrono::system_clock::time_point started;  // for people
  std::chrono::steady_clock::time_point begun;    // the same, for durations
  std::vector<FolderLock> locks;                  // of the agent, for its ranks
  // Nobody has said how many threads: each rank counts how many its model gains from.
  bool counts_threads = false;
};

// Resolves recipe, file and --set, and refuses what cannot be had, before any rank
// starts. ConfigError.
TrainPlan make_plan(const TrainArgs& args, const RecipeList& recipes);

// Where a run's history goes; empty: it has none.
std::string history_path(const TrainArgs& args);

// Takes the folders that the run writes to for itself alone. ConfigError if another run
// has one of them.
std::vector<FolderLock> lock_folders(const TrainPlan& plan);

// A run that does not go on with another begins without what such a run has left.
// Decided once, by who holds the locks: ranks of a later world could not tell.
// ConfigError if there are checkpoints, which nobody removes unasked.
void begin_afresh(const TrainPlan& plan);

// Starts the ranks, or is one of them where a launcher's variables say so. Returns
// the exit code.
int run_train(const TrainArgs& args, const RecipeList& recipes);

// What one rank does. Returns its exit code; throws the library's errors.
int run_train_rank(const TrainPlan& plan);

}  // namespace cohort::cli
