// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/spare_plan.h"

#include <gtest/gtest.h>

namespace cohort::process {
namespace {

using std::chrono::milliseconds;

constexpr Clock::time_point kNow{milliseconds(1'000'000)};

TEST(SparePlan, KeepsItsCountWhereLostOnesAreReplaced) {
  SparePlan plan(2, true);
  plan.set_waiting(1);
  for (int i = 0; i < 5; ++i) plan.lose_one();
  EXPECT_EQ(plan.count(), 3);
}

TEST(SparePlan, LosesThoseThatWaitForATeamFirst) {
  SparePlan plan(2, false);
  plan.set_waiting(1);
  plan.lose_one();
  EXPECT_EQ(plan.counts().waiting, 0);
  EXPECT_EQ(plan.counts().wanted, 2);
  for (int left : {1, 0, 0}) {
    plan.lose_one();
    EXPECT_EQ(plan.count(), left);
  }
}

TEST(SparePlan, TakesItsCountsBackWhereNobodyWasLost) {
  SparePlan plan(1, false);
  plan.set_waiting(1);
  const auto before = plan.counts();
  plan.lose_one();
  plan.lose_one();
  plan.set_counts(before);
  EXPECT_EQ(plan.count(), 2);
}

TEST(SparePlan, GivesUpAfterThreeThatDieOnTheirWayOneAfterAnother) {
  SparePlan plan(1, true);
  EXPECT_FALSE(plan.died_on_its_way());
  EXPECT_FALSE(plan.died_on_its_way());
  plan.arrived();
  EXPECT_FALSE(plan.died_on_its_way());
  EXPECT_FALSE(plan.died_on_its_way());
  EXPECT_FALSE(plan.is_given_up());
  EXPECT_TRUE(plan.died_on_its_way());
  EXPECT_TRUE(plan.is_given_up());
  EXPECT_FALSE(plan.died_on_its_way()) << "that is said once";
  EXPECT_TRUE(plan.is_given_up());
}

TEST(SparePlan, StartsThemWhenTheRanksHaveHadTime) {
  SparePlan plan(1, true);
  EXPECT_EQ(plan.start_at(), Clock::time_point::max());
  plan.start_later(kNow);
  EXPECT_EQ(plan.start_at(), kNow + milliseconds(500));
  plan.start_soon(kNow + milliseconds(10));
  EXPECT_EQ(plan.start_at(), kNow + milliseconds(500)) << "that is earlier";
  plan.start_later(kNow + milliseconds(10));
  EXPECT_EQ(plan.start_at(), kNow + milliseconds(510));
  plan.started();
  EXPECT_EQ(plan.start_at(), Clock::time_point::max());
  plan.start_soon(kNow);
  EXPECT_EQ(plan.start_at(), kNow + milliseconds(500));
}

}  // namespace
}  // namespace cohort::process
