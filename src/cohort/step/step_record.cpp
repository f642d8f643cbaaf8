// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/step_record.h"

#include <algorithm>
#include <map>

#include "cohort/core/error.h"

namespace cohort {
namespace {

// Members of a call: rank and action.
using Call = std::vector<std::pair<size_t, size_t>>;

// Calls of a group that meet: the k-th of each of its ranks.
std::vector<Call> calls_of(const Schedule& schedule, size_t group) {
  std::map<std::pair<int, size_t>, Call> calls;  // by first rank and number
  for (size_t r = 0; r < schedule.roles.size(); ++r) {
    const Role& role = schedule.roles[r];
    const int first = schedule.groups[group].first_of(role.ranks[0]);
    size_t number = 0;
    for (size_t i = 0; i < role.actions.size(); ++i)
      if (role.actions[i].lane == static_cast<int>(group) + 1)
        calls[{first, number++}].emplace_back(r, i);
  }
  std::vector<Call> result;
  for (auto& [key, call] : calls) result.push_back(std::move(call));
  return result;
}

double shortest(const Call& call, const StepRecord& record, size_t step) {
  double seconds = -1;
  for (const auto& [rank, action] : call) {
    const ActionTime& time = record[rank][step][action];
    const double own = time.end - time.begin;
    seconds = seconds < 0 ? own : std::min(seconds, own);
  }
  return seconds;
}

}  // namespace

double median(std::vector<double> values) {
  COHORT_CHECK(!values.empty(), "median of nothing");
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

Schedule by_rank(const Schedule& schedule) {
  Schedule result = schedule;
  result.roles.clear();
  for (int rank = 0; rank < schedule.world; ++rank) {
    result.roles.push_back(schedule.role_of(rank));
    result.roles.back().ranks = {rank};
  }
  return result;
}

StepTimes by_rank(const Schedule& schedule, const StepTimes& times) {
  StepTimes result;
  for (int rank = 0; rank < schedule.world; ++rank)
    result.push_back(times[&schedule.role_of(rank) - schedule.roles.data()]);
  return result;
}

StepTimes usual_times(const StepRecord& record) {
  StepTimes result;
  for (const auto& steps : record) {
    auto& times = result.emplace_back();
    for (size_t i = 0; i < steps[0].size(); ++i) {
      std::vector<double> begins, ends;
      for (const auto& step : steps) {
        begins.push_back(step[i].begin);
        ends.push_back(step[i].end);
      }
      times.push_back({median(std::move(begins)), median(std::move(ends))});
    }
  }
  return result;
}

StepTimes usual_costs(const Schedule& schedule, const StepRecord& record) {
  StepTimes result;
  for (const auto& steps : record) {
    auto& times = result.emplace_back();
    for (size_t i = 0; i < steps[0].size(); ++i) {
      std::vector<double> seconds;
      for (const auto& step : steps) seconds.push_back(step[i].end - step[i].begin);
      times.push_back({0, median(std::move(seconds))});
    }
  }
  for (size_t g = 0; g < schedule.groups.size(); ++g)
    for (const Call& call : calls_of(schedule, g)) {
      std::vector<double> seconds;
      for (size_t s = 0; s < record[0].size(); ++s)
        seconds.push_back(shortest(call, record, s));
      const double usual = median(std::move(seconds));
      for (const auto& [rank, action] : call) result[rank][action].end = usual;
    }
  return result;
}

}  // namespace cohort
