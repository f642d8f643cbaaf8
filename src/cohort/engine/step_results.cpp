// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/step_results.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "cohort/core/error.h"

namespace cohort {
namespace {

Tensor host_room_for(const Tensor& there) {
  return at::empty(there.sizes(),
                   there.options().device(at::kCPU).pinned_memory(there.is_cuda()));
}

}  // namespace

StepResults::StepResults(CudaLane& lane, Communicator& world, const Tensor& numbers,
                         StepInFlight& step)
    : lane_(lane), world_(world), numbers_(numbers), step_(step) {
  int mark = lane.make_marks(kStepsInFlight);
  for (auto& result : results_) {
    result.numbers = host_room_for(numbers);
    result.sums = host_room_for(step.sums.values());
    if (step.clock) result.times = host_room_for(step.clock->times());
    result.mark = mark++;
  }
}

void StepResults::leave(const std::optional<SampleSum>& expected) {
  const c10::NoGradGuard no_grad;
  Result& result = results_[step_.step % kStepsInFlight];
  COHORT_CHECK(
      std::ranges::find(left_, &result) == left_.end(), "step ", step_.step + 1,
      " is started, and nobody has asked for the result of step ", result.step + 1);
  result.step = step_.step;
  result.expected = expected;
  result.split = step_.split;
  result.numbers.copy_(numbers_, /*non_blocking=*/true);
  result.sums.copy_(step_.sums.values(), /*non_blocking=*/true);
  if (step_.clock) result.times.copy_(step_.clock->times(), /*non_blocking=*/true);
  lane_.set_mark(result.mark);
  result.lane = world_.so_far();
  left_.push_back(&result);
}

// The lane may wait for a lost peer without end; its Work does not.
const StepResults::Result& StepResults::await() {
  COHORT_CHECK(!left_.empty(), "no step was started");
  Result& result = *left_.front();
  std::exchange(result.lane, {}).wait();
  lane_.reach_mark(result.mark);
  return result;
}

}  // namespace cohort
