// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "cli/cuda_case.h"
#include "cohort/core/error.h"

namespace cohort::cli {

// Starts each number of ranks in turn, times their steps and prints a row. Returns the
// exit code of the first that fails.
int bench_cuda_ranks(const CudaCase& bench, const BenchTrainArgs& args,
                     std::span<const int> ranks);

// The line for a case that does not fit on a GPU.
ConfigError out_of_gpu(const CudaCase& bench, const BenchTrainArgs& args);

}  // namespace cohort::cli
