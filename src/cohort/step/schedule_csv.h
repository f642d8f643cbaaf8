// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "cohort/step/schedule.h"
#include "cohort/step/step_times.h"

namespace cohort {

struct ScheduleFile {
  Schedule schedule;  // without names, buckets, precision: the file has none of them
  StepTimes times;    // empty: the file has none
};

// A header, one row per action, and comments for people. docs/step.md has the columns.
// Roles, actions and groups survive the way there and back; `times` may be empty.
std::string to_csv(const Schedule& schedule, const StepTimes& times = {});

// ConfigError with line, column, what was found and what is legal for a text that is no
// schedule. Whether the schedule is a good one is the checker's to say.
ScheduleFile from_csv(std::string_view text);

}  // namespace cohort
