// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cohort/step/schedule.h"

namespace cohort {

// Which actions of a rank's list were the last to change what belongs to the parameters
// of a block: its backward with the collectives inside, the sum over ranks, the update.
std::string last_touch(const Schedule& schedule, int rank, int block);

}  // namespace cohort
