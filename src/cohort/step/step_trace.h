// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "cohort/observe/trace.h"
#include "cohort/step/schedule.h"
#include "cohort/step/step_times.h"

namespace cohort {

// A step for write_trace(): one process per rank (per role, in a world of more than
// 64), one thread per lane. Spans point into `names`.
struct StepTrace {
  std::deque<std::string> names;
  std::vector<RankSpans> ranks;
};

// `measured` may be empty; else its lanes come under the predicted ones.
StepTrace trace_of(const Schedule& schedule, const StepTimes& predicted,
                   const StepTimes& measured = {});

}  // namespace cohort
