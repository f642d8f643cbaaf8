// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/meetings.h"

#include <map>

namespace cohort {

std::vector<std::vector<std::set<int>>> find_meetings(const Schedule& schedule) {
  std::vector<int> role_of(schedule.world());
  for (size_t r = 0; r < schedule.roles.size(); ++r)
    for (const int rank : schedule.roles[r].ranks) role_of[rank] = static_cast<int>(r);
  std::vector<std::vector<std::set<int>>> meetings(
      schedule.roles.size(), std::vector<std::set<int>>(schedule.groups.size()));
  for (size_t g = 0; g < schedule.groups.size(); ++g) {
    std::map<int, std::set<int>> instances;  // by their first rank
    for (int rank = 0; rank < schedule.world(); ++rank)
      instances[schedule.mesh.first(rank, schedule.groups[g].axes)].insert(
          role_of[rank]);
    for (const auto& [first, roles] : instances)
      for (const int r : roles) meetings[r][g].insert(roles.begin(), roles.end());
  }
  return meetings;
}

}  // namespace cohort
