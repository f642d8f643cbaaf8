// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cohort/step/schedule.h"
#include "cohort/step/step_times.h"

namespace cohort {

// Steps of one Schedule that were run, as executors timed them: by rank, by step, by
// action.
using StepRecord = std::vector<std::vector<std::vector<ActionTime>>>;

// The same step with a role for each rank, so that each can have times of its own; and
// times by role as times of those.
Schedule by_rank(const Schedule& schedule);
StepTimes by_rank(const Schedule& schedule, const StepTimes& times);

// The steps of the middle half, by how long they took: without the odd ones.
StepRecord middle_half(const StepRecord& record);

// A usual step, by rank: means of begin and of end over the middle half. Means of the
// same steps, so what was in order in each of them still is, and parts add up to the
// whole.
StepTimes usual_times(const StepRecord& record);

// What actions cost, by role: means over the same steps and the ranks of a role, as
// times from 0. In the record each call was waited for where it was started. So it
// includes what equal ranks wait for each other, which no schedule shows; what unequal
// ones wait does not count (fit_costs), as the simulator works that out.
StepTimes usual_costs(const Schedule& schedule, const StepRecord& record);

}  // namespace cohort
