// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/step/schedule.h"

namespace cohort {

// Gives values that take turns in memory a buffer each, in all lists of a schedule that
// has none, and lists these buffers first:
// - gradients that are reduced slice by slice the slot of their bucket, the same on all
//   ranks. A slot is used again when `distance` reductions were started after its own,
//   so that they may overlap;
// - gathered parameters the buffer that is free longest, or another.
void assign_buffers(Schedule& schedule, int distance);

}  // namespace cohort
