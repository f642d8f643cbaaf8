// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/bench_train.h"

namespace cohort::cli {

// `cohort bench train CASE --device cuda`. With one rank: steps on one GPU, replayed
// from a CUDA graph and, in turns, started kernel by kernel. With several: steps of
// ranks with a GPU each. With args.costs nothing is run (bench_foretell.h). Prints a
// row for each number of ranks. ConfigError for an unknown case and where there is no
// GPU.
int run_bench_cuda(const BenchTrainArgs& args);

}  // namespace cohort::cli
