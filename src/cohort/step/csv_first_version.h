// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/step/schedule.h"

// What only files of the first version have: groups as sizes and strides, and memory as
// bytes that actions take and give back.
namespace cohort::csv {

inline constexpr int kMostRanks = 1 << 20;

// A group of ranks.
struct FileGroup {
  std::string name;
  int size = 1;
  int stride = 1;

  std::string text() const { return ::cohort::text(name, ":", size, "x", stride); }
};

// "dp:4x1"; nothing for what is no group.
std::optional<FileGroup> parse_group(const std::string& item);

// Gives the schedule its mesh, groups and channels. Returns a group that is none of a
// hybrid run, if there is one.
std::optional<FileGroup> place_groups(Schedule& schedule, int world,
                                      const std::vector<FileGroup>& groups);

// What an action says of memory: bytes that stay when it is
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
