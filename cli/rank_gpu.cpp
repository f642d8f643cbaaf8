// SPDX-License-Identifier: Apache-2.0
#include "cli/rank_gpu.h"

#include <cstdlib>

#include "cohort/core/error.h"
#include "cohort/engine/cuda/cuda_lane.h"

namespace cohort::cli {

// Each lane of a step is a stream: with fewer queues than streams one could hold up
// another whose result it waits for. CUDA reads this when it starts.
void require_cuda(std::string_view command) {
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  const std::string why = why_no_cuda();
  if (!why.empty())
    throw ConfigError(
        text("[", command, "] --device cuda: ", why, "; legal here: cpu"));
}

int gpu_of(const World& world) { return world.local_rank % cuda_device_count(); }

}  // namespace cohort::cli
