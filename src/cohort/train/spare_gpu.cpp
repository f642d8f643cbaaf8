// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/spare_gpu.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace cohort {

int gpu_for(std::span<const int64_t> chosen, int rank, int gpus) {
  if (chosen[rank] != kNoGpu) return static_cast<int>(chosen[rank]);
  auto before = std::ranges::count(chosen.first(rank), kNoGpu);
  for (int gpu = 0; gpu < gpus; ++gpu)
    if (std::ranges::find(chosen, gpu) == chosen.end() && before-- == 0) return gpu;
  return rank % std::max(1, gpus);
}

int settle_gpu(Communicator& comm, int mine, int gpus) {
  Tensor all = at::zeros({comm.size()}, at::kLong);
  comm.all_gather(all, at::full({1}, mine, at::kLong)).wait();
  return gpu_for({all.const_data_ptr<int64_t>(), static_cast<size_t>(comm.size())},
                 comm.rank(), gpus);
}

}  // namespace cohort
