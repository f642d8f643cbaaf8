// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "cohort/step/cost_table.h"
#include "cohort/step/schedule.h"
#include "cohort/step/step_times.h"

namespace cohort {

// A step that was run, and when each of its actions was.
struct ObservedStep {
  const Schedule& schedule;
  const StepTimes& times;  // roles without times are left out
  double samples = 1;      // per slice
  bool hidden = true;      // links work beside computation
};

// The table that explains some steps best: straight lines through the durations, by
// least squares, never falling. With one number of samples alone, compute is taken to
// grow from zero. What groups and links show includes waiting for late ranks, so for a
// call that several roles were in the shortest counts. Links have a row together, "pp",
// and where there are several one each. `samples` of the table are the last step's.
//
// Nobody sees when a call inside a block ran. Where `known` has a row for it, that is
// kept, and the block's row is for what is left of its time; else the block's row has
// the call, with all waiting for late ranks in it, and the call's own row is 0.
CostTable fit_costs(std::span<const ObservedStep> steps, const CostTable& known = {});

// A link's latency and rate from times of single calls.
struct TimedCall {
  double bytes = 0;  // times ring_factor
  double seconds = 0;
};
LinkCost fit_link(std::span<const TimedCall> calls);

}  // namespace cohort
