// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/step_trace.h"

#include <cmath>

#include "cohort/core/error.h"
#include "cohort/step/checks/role_view.h"
#include "cohort/step/picture/action_look.h"

namespace cohort {
namespace {

constexpr int kMostTraced = 64;

std::vector<LaneSpans> lanes_of(const Schedule& schedule, const Role& role,
                                const std::vector<ActionTime>& times,
                                std::deque<std::string>& names) {
  std::vector<LaneSpans> lanes;
  for (int lane = 0; lane < schedule.lanes(); ++lane)
    lanes.push_back({.lane = schedule.name_of_lane(lane)});
  for (size_t i = 0; i < role.actions.size(); ++i) {
    const Action& action = role.actions[i];
    std::string name = long_name(schedule, action);
    if (action.slice != kNone) name += text(" slice ", action.slice);
    names.push_back(std::move(name));
    const auto start = std::llround(times[i].begin * 1e9);
    lanes[action.lane].spans.push_back(
        {.name = names.back().c_str(),
         .start_ns = start,
         .duration_ns = std::llround(times[i].end * 1e9) - start,
         .id = static_cast<int64_t>(i),
         .bytes = action.bytes > 0 ? action.bytes : -1});
  }
  std::erase_if(lanes, [](const LaneSpans& lane) { return lane.spans.empty(); });
  return lanes;
}

}  // namespace

StepTrace trace_of(const Schedule& schedule, const StepTimes& predicted,
                   const StepTimes& measured) {
  StepTrace trace;
  for (size_t r = 0; r < schedule.roles.size(); ++r) {
    const Role& role = schedule.roles[r];
    auto lanes = lanes_of(schedule, role, predicted[r], trace.names);
    if (!measured.empty())
      for (auto& lane : lanes_of(schedule, role, measured[r], trace.names)) {
        lane.lane = "measured " + lane.lane;
        lanes.push_back(std::move(lane));
      }
    const bool all = schedule.world() <= kMostTraced;
    for (size_t k = 0; k < (all ? role.ranks.size() : 1); ++k)
      trace.ranks.push_back(
          {.rank = role.ranks[k],
           .label = text("role ", r, ": ranks ", ranks_text(role.ranks)),
           .lanes = lanes});
  }
  return trace;
}

}  // namespace cohort
