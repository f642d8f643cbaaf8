// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "recipes/recipe_list.h"

namespace cohort::cli {

// The flags of `cohort bench train`.
struct BenchTrainArgs {
  // mlp100, resnet50-cifar, fashion or a recipe; cuda: resnet50, resnet50-cifar or gpt
  std::string name;
  std::string ranks;  // -n; empty: 2; with cuda a list, such as 1,2,4; empty: 1
  std::string backend = "auto";
  std::string layout;  // as in train
  bool exact = false;
  std::string device = "cpu";
  std::string precision = "float32";  // with cuda
  int64_t batch = 0;                  // with cuda, of a rank; 0: the case's own
  std::string costs_out;              // with cuda: a CSV table to write
  std::string costs, links;           // with cuda: foretell from these, run nothing
  bool kernels = false;               // with cuda: where the time of a step goes
  std::vector<std::string> set;       // for a recipe: key=value
  std::string config;                 // for a recipe: a YAML file
  bool json = false;
};

inline constexpr const char* kBenchTrainHelp =
    "\nExamples:\n  cohort bench train mlp100 -n 2\n"
    "  cohort bench train mlp100 -n 2 --layout shard=3\n"
    "  cohort bench train fashion -n 2 --json\n"
    "  cohort bench train gpt-tiny -n 2 --set data.synthetic=true --set batch=16\n"
    "  cohort bench train resnet50 --device cuda --precision bf16\n"
    "  cohort bench train resnet50 --device cuda -n 1,2,4 --backend nccl\n"
    "  cohort bench train gpt --device cuda --precision bf16 --kernels\n"
    "  cohort bench train resnet50 --device cuda --costs-out costs.csv\n"
    "  cohort bench train resnet50 --device cuda --costs costs.csv \\\n"
    "      --links nvlink4-ndr -n 8,64 --layout shard=3\n";

// Times whole steps in turns within one run: with communication; with it switched off,
// or, for a sharded or exact step, the plain data-parallel one; and (mlp100) a plain
// LibTorch loop of one rank. A recipe's step is timed as `cohort train` runs it. Prints
// one row. Returns the exit code; throws ConfigError for an unknown name or backend.
int run_bench_train(const BenchTrainArgs& args, const RecipeList& recipes);

}  // namespace cohort::cli
