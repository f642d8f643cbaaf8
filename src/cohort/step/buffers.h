// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cohort/step/schedule.h"

namespace cohort {

// Gives values of a list that take turns in memory a buffer each: gradients that are
// reduced slice by slice the slot of their bucket, which is the same on all ranks;
// gathered parameters the one that is free longest, or another.
void assign_buffers(const Schedule& schedule, std::vector<Action>& actions);

}  // namespace cohort
