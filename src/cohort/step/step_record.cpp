// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/step_record.h"

#include <algorithm>
#include <numeric>

namespace cohort {
namespace {

double seconds_of(const StepRecord& record, size_t step) {
  double end = 0;
  for (const auto& steps : record)
    for (const auto& time : steps[step]) end = std::max(end, time.end);
  return end;
}

}  // namespace

StepRecord middle_half(const StepRecord& record) {
  std::vector<size_t> order(record[0].size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<double> seconds;
  for (size_t s : order) seconds.push_back(seconds_of(record, s));
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return seconds[a] < seconds[b]; });
  const size_t odd = order.size() / 4;  // on either side
  StepRecord kept(record.size());
  for (size_t r = 0; r < record.size(); ++r)
    for (size_t i = odd; i < order.size() - odd; ++i)
      kept[r].push_back(record[r][order[i]]);
  return kept;
}

Schedule by_rank(const Schedule& schedule) {
  Schedule result = schedule;
  result.roles.clear();
  for (int rank = 0; rank < schedule.world(); ++rank) {
    result.roles.push_back(schedule.role_of(rank));
    result.roles.back().ranks = {rank};
  }
  return result;
}

StepTimes by_rank(const Schedule& schedule, const StepTimes& times) {
  StepTimes result;
  for (int rank = 0; rank < schedule.world(); ++rank)
    result.push_back(times[&schedule.role_of(rank) - schedule.roles.data()]);
  return result;
}

StepTimes usual_times(const StepRecord& record) {
  StepTimes result;
  for (const auto& steps : middle_half(record)) {
    const auto count = static_cast<double>(steps.size());
    auto& times = result.emplace_back(steps[0].size());
    for (const auto& step : steps)
      for (size_t i = 0; i < step.size(); ++i) {
        times[i].begin += step[i].begin / count;
        times[i].end += step[i].end / count;
      }
  }
  return result;
}

StepTimes usual_costs(const Schedule& schedule, const StepRecord& record) {
  const StepTimes ranks = usual_times(record);
  StepTimes result;
  for (const auto& role : schedule.roles) {
    auto& times = result.emplace_back(role.actions.size());
    for (size_t i = 0; i < times.size(); ++i)
      for (int rank : role.ranks)
        times[i].end += (ranks[rank][i].end - ranks[rank][i].begin) /
                        static_cast<double>(role.ranks.size());
  }
  return result;
}

}  // namespace cohort
