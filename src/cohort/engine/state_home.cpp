// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/state_home.h"

#include <ATen/ATen.h>

#include "cohort/engine/cuda/pinned_memory.h"
#include "cohort/step/memory_plan.h"

namespace cohort {

// A device has each of its buffers once, in one of the two memories.
std::vector<const Buffer*> StateHome::planned(const Schedule& schedule,
                                              Buffer::Holds holds, int bucket) const {
  auto found = cohort::planned(schedule, holds, bucket, memory);
  if (found.empty() && !on_host())
    found = cohort::planned(schedule, holds, bucket, Buffer::Memory::kHost);
  return found;
}

Tensor StateHome::allocate(Communicator& group, const Buffer& buffer) const {
  if (on_host()) return group.allocate({buffer.numel}, buffer.dtype);
  if (buffer.memory == Buffer::Memory::kHost && device().is_cuda())
    return pinned_zeros(buffer.numel, buffer.dtype, device());
  return at::zeros({buffer.numel}, at::TensorOptions(buffer.dtype).device(device()));
}

StateHome host_home() { return {Buffer::Memory::kHost, make_host_kernels()}; }

StateHome home_of(const Schedule& schedule, int gpu) {
  if (schedule.computes_in == Buffer::Memory::kHost) return host_home();
  return {Buffer::Memory::kDevice,
          gpu < 0 ? make_host_kernels() : make_cuda_kernels(gpu)};
}

}  // namespace cohort
