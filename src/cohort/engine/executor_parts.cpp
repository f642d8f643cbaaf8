// SPDX-License-Identifier: Apache-2.0
// How an executor is put together: what computes, and what ends a step, where its state
// lies.
#include <utility>

#include "cohort/engine/device_batches.h"
#include "cohort/engine/device_state.h"
#include "cohort/engine/executor.h"
#include "cohort/engine/host_state.h"

namespace cohort {

std::unique_ptr<ComputeSide> Executor::make_compute() {
  if (!options_.takes_over) start_buffers_equal();
  const int first = schedule_.mesh.slices(comm_.rank(), schedule_.slices).begin;
  return std::make_unique<ComputeSide>(
      chain_, state_, gradients_, schedule_, role_,
      BlockRunner::Options{.seed = options_.seed,
                           .first_slice = first,
                           .may_wait = home_.on_host(),
                           .logits = home_.kernels->logits(),
                           .calls = &calls_},
      make_batches(first), step_);
}

std::unique_ptr<StepBatches> Executor::make_batches(int first) {
  const BatchOptions options{.first_slice = first,
                             .slices = role_.slices,
                             .draws = has_first_block(role_),
                             .compute = schedule_.precision.compute,
                             .rounded = chain_.block_fields(),
                             .seed = options_.seed};
  if (home_.on_host()) return std::make_unique<HostBatches>(options, step_);
  require_no_data_calls(schedule_);
  auto batches = std::make_unique<DeviceBatches>(options, *lane_, step_);
  const bool alone = comm_.size() == 1;
  const bool is_disturbed = services_.faults && services_.faults->is_armed();
  // What crosses links has no memory in the plan that a replay could rely on.
  const bool captures = options_.capture && lane_->can_capture() &&
                        (alone || comm_.is_capturable()) && schedule_.stages.empty() &&
                        !is_disturbed && !services_.watch;
  graph_ = std::make_unique<StepGraph>(
      *lane_, *batches,
      StepGraph::Options{.captures = captures,
                         .alone = alone,
                         .stretches = ahead_ > 0 ? 2 : 1,
                         .wait = [this] { comm_.so_far().wait(); }});
  if (!lane_->device().is_cuda()) return batches;
  step_.clock = std::make_unique<StepClock>(role_, *home_.kernels, ahead_);
  lanes_ = std::make_unique<ActionLanes>(*lane_, role_, step_.clock.get());
  return batches;
}

std::unique_ptr<StateSide> Executor::make_end(const UpdateRule& rule) {
  if (!home_.on_host())
    return std::make_unique<DeviceState>(chain_, schedule_, role_, channels_.groups(),
                                         home_, *lane_, rule, state_, gradients_,
                                         *compute_, step_, options_);
  return std::make_unique<HostState>(chain_, schedule_, role_, channels_.groups(), rule,
                                     state_, gradients_, *compute_, step_, options_,
                                     updates_at_once_);
}

// Rank 0's buffers are everyone's.
void Executor::start_buffers_equal() {
  for (auto& [name, tensor] : chain_.buffers()) {
    Tensor buffer = tensor;
    comm_.broadcast(buffer, 0).wait();
  }
}

}  // namespace cohort
