// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cohort/observe/span.h"

namespace cohort {

struct RankSpans {
  int rank = 0;
  std::string label;  // shown beside the rank: its host, for one
  std::vector<LaneSpans> lanes;
};

// Spans in the trace format of Chrome, Perfetto and Kineto: a rank is a process, a
// lane a thread. Times are microseconds since the earliest span, so ranks must share
// a clock, as those of one node do.
std::string trace_json(std::span<const RankSpans> ranks);

}  // namespace cohort
