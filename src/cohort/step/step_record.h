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

// A usual step, by rank: medians of begin and of end. What was in order in every step
// is so in the medians.
StepTimes usual_times(const StepRecord& record);

// What actions cost, by rank: medians of durations, as times from 0. Of a call counts
// in each step what it took the last rank to come to it, for all others waited.
// `schedule` is by rank, and in the record each call was waited for where it was
// started.
StepTimes usual_costs(const Schedule& schedule, const StepRecord& record);

double median(std::vector<double> values);

}  // namespace cohort
