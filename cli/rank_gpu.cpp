// SPDX-License-Identifier: Apache-2.0
#include "cli/rank_gpu.h"

#include "cohort/core/error.h"
#include "cohort/engine/cuda/cuda_lane.h"

namespace cohort::cli {

void require_cuda(std::string_view command) {
  const std::string why = why_no_cuda();
  if (!why.empty())
    throw ConfigError(
        text("[", command, "] --device cuda: ", why, "; legal here: cpu"));
}

int gpu_of(const World& world) { return world.local_rank % cuda_device_count(); }

}  // namespace cohort::cli
