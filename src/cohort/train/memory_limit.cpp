// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/memory_limit.h"

#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/core/memory.h"
#include "cohort/engine/cuda/cuda_lane.h"

namespace cohort {
namespace {

std::string bytes_text(int64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

}  // namespace

std::string PlacedMemory::text() const {
  if (gpu == 0) return bytes_text(host);
  return cohort::text(bytes_text(gpu), " of the GPU's memory and ", bytes_text(host),
                      " of the host's");
}

MemoryIn memory_for(const ExecutorOptions& options) {
  return options.compute_on == ComputeOn::kHost ? MemoryIn::kHost : MemoryIn::kDevice;
}

PlacedMemory available_to_rank(int ranks, const ExecutorOptions& options) {
  ranks = std::max(1, ranks);
  PlacedMemory here{.host = available_memory() / ranks, .gpu = 0};
  if (options.compute_on == ComputeOn::kStaged) here.gpu = here.host;
  if (options.compute_on != ComputeOn::kCuda) return here;
  const int gpus = std::max(1, cuda_device_count());
  here.gpu = cuda_free_memory(options.gpu) / ((ranks + gpus - 1) / gpus);
  return here;
}

}  // namespace cohort
