// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/spare_gpu.h"

#include <algorithm>
#include <string>
#include <vector>

#include "cohort/comm/backends.h"
#include "cohort/core/error.h"
#include "cohort/core/parse.h"

namespace cohort {

int gpu_for(std::span<const int64_t> chosen, int rank, int gpus) {
  if (chosen[rank] != kNoGpu) return static_cast<int>(chosen[rank]);
  auto before = std::ranges::count(chosen.first(rank), kNoGpu);
  for (int gpu = 0; gpu < gpus; ++gpu)
    if (std::ranges::find(chosen, gpu) == chosen.end() && before-- == 0) return gpu;
  return rank % std::max(1, gpus);
}

int settle_gpu(const World& world, Store& store, int mine, int gpus,
               std::chrono::milliseconds timeout) {
  std::vector<int64_t> chosen;
  for (const auto& said : told_by_ranks(world, store, "chosen", text(mine), timeout))
    chosen.push_back(parse_int(said, "the number of a GPU"));
  return gpu_for(chosen, world.rank, gpus);
}

}  // namespace cohort
