// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cohort/step/schedule.h"

namespace cohort {

// Which actions of a rank's list were the last to change what belongs to the parameters
// of a block: its backward with the collectives inside, the sum over ranks, the update.
std::string last_touch(const Schedule& schedule, int rank, int block);

// Which were the last to change the loss: the forward of the last block, where the rank
// has that, and the sum over ranks.
std::string last_touch_of_loss(const Schedule& schedule, int rank);

// The forward of a block, with the collectives inside; `slice` of the global batch.
std::string forward_action(const Schedule& schedule, int rank, int block, int slice);

}  // namespace cohort
