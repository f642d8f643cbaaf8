// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/state_home.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace cohort {

Tensor StateHome::allocate(Communicator& group, const Buffer& buffer) const {
  if (on_host()) return group.allocate({buffer.numel}, buffer.dtype);
  return at::zeros({buffer.numel}, at::TensorOptions(buffer.dtype).device(device()));
}

StateHome host_home() { return {Buffer::Place::kHost, make_host_kernels()}; }

// What is planned for both places is a state of the host, with copies.
StateHome home_of(const Schedule& schedule, int gpu) {
  const bool on_device = std::ranges::all_of(schedule.buffers, [](const Buffer& b) {
    return b.place == Buffer::Place::kDevice;
  });
  if (schedule.buffers.empty() || !on_device) return host_home();
  return {Buffer::Place::kDevice,
          gpu < 0 ? make_host_kernels() : make_cuda_kernels(gpu)};
}

}  // namespace cohort
