// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "cohort/comm/store.h"
#include "cohort/comm/world.h"

namespace cohort {

// The number of a rank's GPU before it has one.
inline constexpr int kNoGpu = -1;

// `chosen`: the GPUs of all ranks of a node, kNoGpu where one has none yet. A rank that
// has one keeps it; the others take, in their order, those that nobody has, and share
// when there are no more.
int gpu_for(std::span<const int64_t> chosen, int rank, int gpus);

// Collective over the ranks of a world on one node, before they connect: this rank's
// GPU, when `mine` is the one it has so far. CommError if one does not come in time.
int settle_gpu(const World& world, Store& store, int mine, int gpus,
               std::chrono::milliseconds timeout);

}  // namespace cohort
