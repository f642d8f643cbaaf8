// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "cohort/communicator.h"
#include "cohort/engine/state_kernels.h"
#include "cohort/step/schedule.h"

namespace cohort {

// Where the state of a rank is computed with, and what is done to it there. A device
// reaches what the plan places in the host's memory: all tensors are on device().
struct StateHome {
  Buffer::Memory memory = Buffer::Memory::kHost;
  std::shared_ptr<StateKernels> kernels;

  bool on_host() const { return memory == Buffer::Memory::kHost; }
  at::Device device() const { return kernels->device(); }
  // As planned(), wherever a home like this one has it.
  std::vector<const Buffer*> planned(const Schedule& schedule, Buffer::Holds holds,
                                     int bucket) const;
  // Memory as the plan has it, zeroed: on the host what `group` is fastest with; for a
  // device its own, or pinned memory of the host.
  Tensor allocate(Communicator& group, const Buffer& buffer) const;
};

StateHome host_home();
// As the schedule places it; `gpu` is this rank's. Negative: the host stands in for the
// device, so that its way is tried where there is none.
StateHome home_of(const Schedule& schedule, int gpu);

}  // namespace cohort
