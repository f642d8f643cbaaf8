// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/bench_train.h"

namespace cohort::cli {

// `cohort bench train CASE --device cuda`: steps of one rank on one GPU, replayed from
// a CUDA graph and, in turns, started kernel by kernel. Prints one row. ConfigError for
// an unknown case and where there is no GPU.
int run_bench_cuda(const BenchTrainArgs& args);

}  // namespace cohort::cli
