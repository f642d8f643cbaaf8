// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cohort/engine/step_runner.h"

namespace cohort {

// True if a CudaStep does all that this schedule asks of its one rank.
bool is_whole_step(const Schedule& schedule, const ExecutorOptions& options);

std::unique_ptr<StepRunner> make_cuda_runner(Chain& chain, const Schedule& schedule,
                                             const UpdateOptions& update,
                                             const ExecutorOptions& options);

}  // namespace cohort
