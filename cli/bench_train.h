// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cohort::cli {

// The flags of `cohort bench train`.
struct BenchTrainArgs {
  std::string name;         // mlp100, resnet50-cifar or fashion
  std::string ranks = "2";  // -n
  std::string backend = "auto";
  bool json = false;
};

// Times whole steps: with communication, with it switched off, and (mlp100) a plain
// LibTorch loop of one rank, in turns within one run. Prints one row. Returns the
// exit code; throws ConfigError for an unknown name.
int run_bench_train(const BenchTrainArgs& args);

}  // namespace cohort::cli
