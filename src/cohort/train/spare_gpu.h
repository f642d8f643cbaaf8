// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "cohort/comm/communicator.h"

namespace cohort {

// The number of a rank's GPU before it has one.
inline constexpr int kNoGpu = -1;

// `chosen`: the GPUs of all ranks of a node, kNoGpu where one has none yet. A rank that
// has one keeps it; the others take, in their order, those that nobody has, and share
// when there are no more.
int gpu_for(std::span<const int64_t> chosen, int rank, int gpus);

// Collective over the ranks of one node: this rank's, when `mine` is its GPU so far.
int settle_gpu(Communicator& comm, int mine, int gpus);

}  // namespace cohort
