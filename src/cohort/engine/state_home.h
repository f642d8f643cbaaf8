// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cohort/comm/communicator.h"
#include "cohort/engine/state_kernels.h"
#include "cohort/step/schedule.h"

namespace cohort {

// Where the state of a rank lies, and what is done to it there.
struct StateHome {
  Buffer::Place place = Buffer::Place::kHost;
  std::shared_ptr<StateKernels> kernels;

  bool on_host() const { return place == Buffer::Place::kHost; }
  at::Device device() const { return kernels->device(); }
  // Memory as the plan has it, zeroed: the host's is what `group` is fastest with.
  Tensor allocate(Communicator& group, const Buffer& buffer) const;
};

StateHome host_home();
// As the schedule places it; `gpu` is this rank's. Negative: the host stands in for the
// device, so that its way is tried where there is none.
StateHome home_of(const Schedule& schedule, int gpu);

}  // namespace cohort
