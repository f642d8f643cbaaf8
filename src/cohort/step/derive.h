// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cohort/step/schedule.h"

namespace cohort {

// Makes every action of a list wait for the one that wrote what it reads, and for those
// that may still use the memory that it writes. These are the fewest waits that give
// this order: what a lane or another wait makes certain is not waited for. Earlier
// waits are dropped. Where a step may begin before the one before it has ended, it
// waits for that one's actions, too: the list is taken twice in a row.
void derive_waits(std::vector<Action>& actions, int lanes, bool runs_ahead = false);

// By action: earlier ones of its own lane that write what it reads, or use a buffer
// that it writes to. An executor that starts an action before the lane has finished the
// one before it must finish these first.
std::vector<std::vector<int>> inputs_in_lane(const std::vector<Action>& actions);

}  // namespace cohort
