// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/roles_met.h"

#include <map>

namespace cohort {
namespace {

std::vector<int> roles_by_rank(const Schedule& schedule) {
  std::vector<int> role_of(schedule.world());
  for (size_t r = 0; r < schedule.roles.size(); ++r)
    for (const int rank : schedule.roles[r].ranks) role_of[rank] = static_cast<int>(r);
  return role_of;
}

// The two ends of a link: ranks that differ in their place along the pipeline alone.
void meet_on_link(const Schedule& schedule, int lane, const std::vector<int>& role_of,
                  RolesMet& met) {
  const Channel& link = schedule.channels[lane];
  const int places = schedule.mesh.size(Axis::kPipe);
  if (link.from < 0 || link.to < 0 || link.from >= places || link.to >= places) return;
  for (int rank = 0; rank < schedule.world(); ++rank) {
    if (schedule.mesh.coordinate(rank, Axis::kPipe) != link.from) continue;
    const int a = role_of[rank];
    const int b = role_of[schedule.mesh.with(rank, Axis::kPipe, link.to)];
    for (const int r : {a, b}) met[r][lane].insert({a, b});
  }
}

}  // namespace

RolesMet roles_met_in_groups(const Schedule& schedule) {
  const std::vector<int> role_of = roles_by_rank(schedule);
  RolesMet met(schedule.roles.size(),
               std::vector<std::set<int>>(schedule.groups.size()));
  for (size_t g = 0; g < schedule.groups.size(); ++g) {
    const Group& group = schedule.groups[g];
    std::map<int, std::set<int>> instances;  // by their first rank
    for (int rank = 0; rank < schedule.world(); ++rank)
      if (group.places.empty() || !schedule.members(group, rank).empty())
        instances[schedule.mesh.first(rank, group.axes)].insert(role_of[rank]);
    for (const auto& [first, roles] : instances)
      for (const int r : roles) met[r][g].insert(roles.begin(), roles.end());
  }
  return met;
}

RolesMet roles_met_in_lanes(const Schedule& schedule) {
  const std::vector<int> role_of = roles_by_rank(schedule);
  const RolesMet in_groups = roles_met_in_groups(schedule);
  RolesMet met(schedule.roles.size(),
               std::vector<std::set<int>>(schedule.channels.size()));
  for (int lane = 0; lane < schedule.lanes(); ++lane) {
    const Channel& channel = schedule.channels[lane];
    if (channel.kind == Channel::Kind::kLink)
      meet_on_link(schedule, lane, role_of, met);
    for (size_t r = 0; channel.kind == Channel::Kind::kGroup && r < met.size(); ++r)
      met[r][lane] = in_groups[r][channel.group];
  }
  return met;
}

}  // namespace cohort
