// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "cohort/step/schedule.h"

namespace cohort::csv {

// What an action of the first kind of files says of memory: bytes that stay when it is
// done (of Commit: between steps), and bytes that it gives back.
struct OldMemory {
  int64_t takes = 0;
  int64_t frees = 0;
};

// Gives a schedule of such a file the buffers and bytes that these numbers tell of. Its
// actions must be declared. ConfigError unless what is taken is given back.
void apply_memory(Schedule& schedule,
                  const std::vector<std::vector<OldMemory>>& memory);

}  // namespace cohort::csv
