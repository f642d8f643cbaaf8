// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "cohort/engine/step_runner.h"
#include "cohort/step/checker.h"
#include "cohort/step/generator.h"
#include "cohort/step/schedule.h"

namespace cohort {

// Bytes of a rank on the host and on its GPU: one is no help for the other.
struct PlacedMemory {
  int64_t host = 0;
  int64_t gpu = 0;

  bool fits(const PlacedMemory& limit) const {
    return host <= limit.host && gpu <= limit.gpu;
  }
  // "3 GB", or "2 GB of the GPU's memory and 5 GB of the host's".
  std::string text() const;
};

// Where the memory of a step should be. A rank that computes on the host has all of it
// there, one that computes on a GPU on the GPU, but for what step.offload moves.
MemoryIn memory_for(const ExecutorOptions& options);

// What this machine can give to one of `ranks` that share it.
PlacedMemory available_to_rank(int ranks, const ExecutorOptions& options);

}  // namespace cohort
