// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "cohort/comm/world.h"
#include "cohort/communicator.h"

namespace cohort {

struct WithGpuWindows {
  std::unique_ptr<Communicator> comm;
  std::string why_not;  // in one line; empty: `comm` takes tensors of the GPU
};

// Collective. Where all ranks of `host` share memory and the GPU of that number, which
// NCCL refuses, a communicator of the same name that takes tensors of the GPU, too:
// they pass through memory of it that all ranks have mapped
// (comm/window/window_group.h), in the CUDA stream that is current at the call, and
// calls may be captured. Otherwise `host` as it was, on every rank.
WithGpuWindows with_gpu_windows(std::unique_ptr<Communicator> host, int gpu,
                                const ConnectOptions& options);

}  // namespace cohort
