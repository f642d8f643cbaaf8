// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/step_runner.h"

#include <utility>

#include "cohort/engine/cuda/cuda_runner.h"
#include "cohort/engine/executor.h"

namespace cohort {

std::unique_ptr<StepRunner> make_step_runner(Chain& chain, Schedule schedule,
                                             const UpdateOptions& update,
                                             const UpdateRule& rule, Communicator& comm,
                                             const ExecutorOptions& options) {
  if (is_whole_step(schedule, options))
    return make_cuda_runner(chain, schedule, update, options);
  return std::make_unique<Executor>(chain, std::move(schedule), rule, comm, options);
}

}  // namespace cohort
