// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/cuda_case.h"

namespace cohort::cli {

// Times each action of steps on one GPU, at half the batch and at the batch, and writes
// args.costs_out: a table of costs without links.
void write_cuda_costs(const CudaCase& bench, const BenchTrainArgs& args);

}  // namespace cohort::cli
