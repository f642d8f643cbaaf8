// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/step_record.h"

#include <gtest/gtest.h>

#include "cohort/step/checker.h"
#include "cohort/step/generator.h"

namespace cohort {
namespace {

std::vector<BlockSpec> one_block() {
  return {{.name = "b", .parameters = {{.name = "w", .shape = {2048}, .end = 2048}}}};
}

TEST(StepRecord, ARoleForEachRankIsTheSameStep) {
  for (int shard = 0; shard <= 3; ++shard) {
    const Schedule schedule =
        generate(one_block(), {.dp = 3, .shard = shard}, {.slices = 4});
    const Schedule ranks = by_rank(schedule);
    ASSERT_EQ(ranks.roles.size(), 3u);
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(ranks.roles[r].ranks, std::vector{r});
      EXPECT_EQ(ranks.roles[r].slices, schedule.role_of(r).slices);
    }
    EXPECT_EQ(check(ranks).largest().parts.total(),
              check(schedule).largest().parts.total());
  }
}

// The shortest and the longest of four steps are left out.
TEST(StepRecord, UsualTimesAreMeansOfTheMiddleHalf) {
  const StepRecord record = {
      {{{0, 2}, {2, 5}}, {{0, 9}, {9, 30}}, {{0, 4}, {6, 7}}, {{0, 1}, {1, 2}}}};
  EXPECT_EQ(usual_times(record), (StepTimes{{{0, 3}, {4, 6}}}));
  EXPECT_EQ(usual_times({{{{0, 2}}}}), (StepTimes{{{0, 2}}}));
}

// Rank 1 is slower, so rank 0 waits for it in the call: both together took 3 + 1.
TEST(StepRecord, CostsAreThoseOfARolesMeanRank) {
  const Schedule schedule = generate(one_block(), {.dp = 2}, {.slices = 2});
  ASSERT_EQ(schedule.roles.size(), 1u);
  const auto& actions = schedule.roles[0].actions;
  StepRecord record(2, {std::vector<ActionTime>(actions.size())});
  for (size_t i = 0; i < actions.size(); ++i) {
    const bool call = actions[i].lane != kComputeLane;
    record[0][0][i] = {10, call ? 13.0 : 11.0};
    record[1][0][i] = {10, call ? 11.0 : 13.0};
  }
  const StepTimes costs = usual_costs(schedule, record);
  ASSERT_EQ(costs.size(), 1u);
  for (const auto& cost : costs[0]) EXPECT_EQ(cost, (ActionTime{0, 2}));
}

}  // namespace
}  // namespace cohort
