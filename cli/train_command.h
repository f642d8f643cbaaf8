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

inline constexpr const char* kTrainHelp =
    R"(
Examples:
  cohort train fashion-mnist -n 2
  cohort train fashion-mnist -n 2 --max-steps 100 --set optim.lr=0.1 --json
  cohort train fashion-mnist -n 2 --config run.yaml --out runs/first
  cohort train fashion-mnist -n 2 --set checkpoint.dir=runs/a --set checkpoint.every_steps=100
  cohort train fashion-mnist -n 4 --set checkpoint.dir=runs/a --resume
  cohort train gpt-tiny -n 2 --sample "In the beginning" --set sample.tokens=200
  cohort train mlp -n 4 --nnodes 2 --rdzv node0:29400 --rdzv-token ~/.rdzv    on each node
  torchrun --nproc-per-node 2 --no-python cohort train fashion-mnist

Exit codes: 0 done; 1 a bug or a NaN loss; 2 usage or configuration; 3 data; 4 a rank lost;
5 checkpoint; 75 stopped on request with state saved; 128 + signal otherwise.
)";

// Starts the ranks, or is one of them where a launcher's variables say so. Returns
// the exit code.
int run_train(const TrainArgs& args, const RecipeList& recipes);

}  // namespace cohort::cli
