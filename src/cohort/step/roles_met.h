// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <vector>

#include "cohort/step/schedule.h"

namespace cohort {

// By role, and by group or lane: the roles that ranks of it meet there, itself among
// them; none where a rank is alone. Every rank has a role.
using RolesMet = std::vector<std::vector<std::set<int>>>;

RolesMet roles_met_in_groups(const Schedule& schedule);
RolesMet roles_met_in_lanes(const Schedule& schedule);

}  // namespace cohort
