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
  double samples = 1;      // of a slice
  bool hidden = true;      // links work beside computation
};

// The table that explains some steps best: straight lines through the durations, by
// least squares, never falling. With one number of samples alone, compute is taken to
// grow from zero. What links show includes waiting for late ranks, so for a call that
// several roles were in the shortest counts. `samples` of the table are the last
// step's.
CostTable fit_costs(std::span<const ObservedStep> steps);

}  // namespace cohort
