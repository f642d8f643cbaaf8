// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/step_memory.h"

#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/core/memory.h"
#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/engine/cuda/cuda_runner.h"
#include "cohort/step/tensor_spec.h"

namespace cohort {
namespace {

// Of all parameters, as they are computed with.
int64_t parameter_copies(const Schedule& schedule) {
  int64_t numel = 0;
  for (const auto& bucket : schedule.buckets) numel += bucket.numel;
  return numel * size_of(schedule.precision.compute);
}

// Of all gradients; from level 2 on they take turns in pieces fit for the largest.
int64_t gradient_copies(const Schedule& schedule) {
  int64_t sum = 0, largest = 0;
  int pieces = 0;
  for (const auto& bucket : schedule.buckets) {
    if (!bucket.trained) continue;
    sum += bucket.numel;
    largest = std::max(largest, bucket.numel);
    pieces = std::max(pieces, bucket.slot + 1);
  }
  return (schedule.shard < 2 ? sum : pieces * largest) *
         size_of(schedule.precision.compute);
}

std::string bytes_text(int64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

}  // namespace

std::string PlacedMemory::text() const {
  if (gpu == 0) return bytes_text(host);
  return cohort::text(bytes_text(gpu), " of the GPU's memory and ", bytes_text(host),
                      " of the host's");
}

PlacedMemory placed(const Schedule& schedule, const MemoryParts& parts,
                    const ExecutorOptions& options) {
  if (options.compute_on != ComputeOn::kCuda) return {.host = parts.total(), .gpu = 0};
  if (is_whole_step(schedule, options)) return {.host = 0, .gpu = parts.total()};
  // Gathered parameters are on both sides.
  const int64_t parameters =
      schedule.shard == 3 ? parts.parameters : parameter_copies(schedule);
  return {.host = parts.state + parts.parameters + parts.gradients,
          .gpu = parts.activations + parts.scratch + parameters +
                 gradient_copies(schedule)};
}

PlacedMemory available_to_rank(int ranks, const ExecutorOptions& options) {
  ranks = std::max(1, ranks);
  PlacedMemory here{.host = available_memory() / ranks, .gpu = 0};
  if (options.compute_on != ComputeOn::kCuda) return here;
  const int gpus = std::max(1, cuda_device_count());
  here.gpu = cuda_free_memory(options.gpu) / ((ranks + gpus - 1) / gpus);
  return here;
}

}  // namespace cohort
