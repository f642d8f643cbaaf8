// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "cohort/observe/trace.h"
#include "cohort/step/schedule.h"
#include "cohort/step/step_times.h"

namespace cohort {

// A step for write_trace(): a process a rank (a role, in a world of more than 64), a
// thread a lane. Spans point into `names`.
struct StepTrace {
  std::deque<std::string> names;
  std::vector<RankSpans> ranks;
};

StepTrace trace_of(const Schedule& schedule, const StepTimes& times);

}  // namespace cohort
