// SPDX-License-Identifier: Apache-2.0
// What reader and writer of schedules share.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "cohort/core/error.h"
#include "cohort/step/schedule.h"

namespace cohort::csv {

// Files of the first kind have takes and frees; the others have records in their
// comments, and calls, reads and writes. Exchanges of several transfers, and times, are
// only in files that have some.
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
  kCalls,
  kReads,
  kWrites,
  kWaits,
  kBatch,
  kStart,
  kEnd,
};
inline constexpr std::array<std::string_view, 22> kColumns = {
    "role",  "ranks",   "slices", "id",    "kind",     "lane",    "group", "block",
    "slice", "buckets", "bytes",  "takes", "frees",    "scratch", "needs", "calls",
    "reads", "writes",  "waits",  "batch", "start_us", "end_us"};

inline bool is_of_version(int column, int version) {
  if (column == kTakes || column == kFrees) return version == 1;
  if (column == kCalls || column == kReads || column == kWrites) return version == 2;
  return column < kBatch;
}
inline bool is_optional(int column, int version) {
  return column >= kStart || (column == kBatch && version == 2);
}

// A name of letters, digits and underscores.
inline bool is_group_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// What was found, as a message may have it.
inline std::string shown(std::string_view found) {
  std::string out(found.substr(0, 40));
  for (char& c : out)
    if (c < ' ' || c > '~') c = '?';
  return out;
}

// What a row says of its lane in the other files: a group or a link, by its name.
inline std::string lane_text(const Schedule& schedule, int lane) {
  return lane == kComputeLane ? "" : schedule.name_of_lane(lane);
}

}  // namespace cohort::csv
