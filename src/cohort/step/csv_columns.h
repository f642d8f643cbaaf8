// SPDX-License-Identifier: Apache-2.0
// What reader and writer of schedules share.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "cohort/core/error.h"
#include "cohort/step/schedule.h"

namespace cohort::csv {

enum Column {
  kRoleColumn,
  kRanks,
  kSlices,
  kId,
  kKind,
  kLane,
  kGroup,
  kBlock,
  kSlice,
  kBuckets,
  kBytes,
  kTakes,
  kFrees,
  kScratch,
  kNeeds,
  kWaits,
  kStart,
  kEnd,
};
inline constexpr int kAlways = kStart;  // columns that every file has
inline constexpr std::array<std::string_view, 18> kColumns = {
    "role",  "ranks",   "slices", "id",      "kind",     "lane",
    "group", "block",   "slice",  "buckets", "bytes",    "takes",
    "frees", "scratch", "needs",  "waits",   "start_us", "end_us"};

// A group as files have it.
struct FileGroup {
  std::string name;
  int size = 1;
  int stride = 1;

  std::string text() const { return ::cohort::text(name, ":", size, "x", stride); }
};

inline std::string group_text(const Schedule& schedule, const Group& group) {
  return FileGroup{group.name, schedule.size_of(group), stride_of(schedule, group)}
      .text();
}

}  // namespace cohort::csv
