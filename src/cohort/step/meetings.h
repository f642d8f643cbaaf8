// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <vector>

#include "cohort/step/schedule.h"

namespace cohort {

// By role and group: the roles that ranks of it meet there, itself among them. Every rank
// has a role.
std::vector<std::vector<std::set<int>>> find_meetings(const Schedule& schedule);

}  // namespace cohort
