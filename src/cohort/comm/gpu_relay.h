// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cohort/comm/world.h"
#include "cohort/communicator.h"

namespace cohort {

// Collective. A communicator of the same name as `host` that takes tensors of that GPU,
// too: they go through pinned memory of the host and a thread that makes the calls
// there (comm/relay/relay_group.h), in the CUDA stream that is current at the call.
// Calls are not captured. ConfigError where the GPU or its driver cannot.
//
// Returns `host` as it was if it takes them already, or has one rank.
std::unique_ptr<Communicator> with_gpu_relay(std::unique_ptr<Communicator> host,
                                             int gpu, const ConnectOptions& options);

}  // namespace cohort
