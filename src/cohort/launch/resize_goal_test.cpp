// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/resize_goal.h"

#include <gtest/gtest.h>

namespace cohort::process {
namespace {

using std::chrono::milliseconds;

constexpr Clock::time_point kStart{milliseconds(1'000'000)};
constexpr bool kCommitted = true, kNothingYet = false;

TEST(ResizeGoal, WithoutOneThereIsNothingToDo) {
  ResizeGoal goal(1, milliseconds(100));
  EXPECT_FALSE(goal.is_set());
  EXPECT_EQ(goal.next(3, kCommitted, kStart), std::nullopt);
}

TEST(ResizeGoal, GrowsAtOnce) {
  ResizeGoal goal(1, milliseconds(100));
  goal.set(5);
  EXPECT_EQ(goal.next(1, kNothingYet, kStart), 5);
  EXPECT_FALSE(goal.is_set());
}

TEST(ResizeGoal, ShrinksByOneTeamAfterEachCommittedStep) {
  ResizeGoal goal(2, milliseconds(100));
  goal.set(2);
  EXPECT_EQ(goal.next(6, kNothingYet, kStart), 4) << "the first waits for nothing";
  EXPECT_TRUE(goal.is_set());
  EXPECT_EQ(goal.next(4, kNothingYet, kStart), std::nullopt);
  EXPECT_EQ(goal.next(4, kCommitted, kStart), 2);
  EXPECT_FALSE(goal.is_set());
}

TEST(ResizeGoal, WaitsForAStepNoLongerThanItsPatience) {
  ResizeGoal goal(1, milliseconds(100));
  goal.set(1);
  EXPECT_EQ(goal.next(3, kNothingYet, kStart), 2);
  EXPECT_EQ(goal.next(2, kNothingYet, kStart + milliseconds(99)), std::nullopt);
  EXPECT_EQ(goal.next(2, kNothingYet, kStart + milliseconds(100)), 1);
}

TEST(ResizeGoal, ANewGoalWaitsForNothingOfTheOldOne) {
  ResizeGoal goal(1, milliseconds(100));
  goal.set(1);
  EXPECT_EQ(goal.next(5, kNothingYet, kStart), 4);
  goal.set(2);
  EXPECT_EQ(goal.next(4, kNothingYet, kStart), 3);
}

TEST(ResizeGoal, ALossMayDoWhatAShrinkWasAskedFor) {
  ResizeGoal goal(1, milliseconds(100));
  goal.set(3);
  goal.lost_to(4);
  EXPECT_TRUE(goal.is_set());
  goal.lost_to(3);
  EXPECT_FALSE(goal.is_set());
}

}  // namespace
}  // namespace cohort::process
