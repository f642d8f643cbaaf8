// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/step/schedule.h"

namespace cohort {

// How many actions of a list, from its first on, may be started while nobody knows yet
// what the same list came to in the step before: all in front of its first backward, as
// far as none of them writes what that step may have to be finished with. That is what
// its Updates and its Commit read, but for the loss, of which a result has a copy.
int actions_ahead(const Role& role);

}  // namespace cohort
