// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/step_runner.h"

#include <utility>

#include "cohort/core/error.h"
#include "cohort/core/hash.h"
#include "cohort/engine/executor.h"

namespace cohort {

void require_expected(const StepInput& input, const SampleSum& drawn) {
  if (!input.expected || *input.expected == drawn) return;
  throw BugError(text("[engine] step ", input.step + 1, ": the ranks drew ",
                      drawn.count, " samples with the sum ", hex16(drawn.sum),
                      "; the order of samples has ", input.expected->count, " with ",
                      hex16(input.expected->sum), ", so the step does not count"));
}

std::unique_ptr<StepRunner> make_step_runner(Chain& chain, Schedule schedule,
                                             const UpdateOptions& update,
                                             const UpdateRule& rule, Communicator& comm,
                                             const ExecutorOptions& options,
                                             const ExecutorServices& services) {
  ExecutorOptions with_update = options;
  with_update.update = update;
  return std::make_unique<Executor>(chain, std::move(schedule), rule, comm, with_update,
                                    services);
}

}  // namespace cohort
