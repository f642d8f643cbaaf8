// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/restart_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace cohort::process {
namespace {

using testing::HasSubstr;

Failure killed(int rank) {
  Failure failure;
  failure.rank = rank;
  failure.signal = SIGKILL;
  failure.exit_code = 128 + SIGKILL;
  return failure;
}

Failure ended(int rank, int code) {
  Failure failure;
  failure.rank = rank;
  failure.exit_code = code;
  return failure;
}

RestartBudget::Steps at(int64_t step) { return {.now = step, .highest = step}; }

TEST(RestartBudget, EndsWithItsNumberOfRestarts) {
  RestartBudget budget(2);
  EXPECT_FALSE(budget.spend({killed(0)}, at(1)));
  EXPECT_FALSE(budget.spend({killed(0), killed(1)}, at(2)));
  EXPECT_EQ(budget.used(), 2);
  const auto refusal = budget.spend({ended(1, 4), killed(0)}, at(3));
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->cause.rank, 0);  // the other one only lost it
  EXPECT_THAT(refusal->why, HasSubstr("all 2 restarts"));
}

TEST(RestartBudget, RefusesTheThirdDeathOfARankAtAStep) {
  RestartBudget budget(100);
  EXPECT_FALSE(budget.spend({killed(0), killed(1)}, at(7)));
  EXPECT_FALSE(budget.spend({killed(1)}, at(7)));
  EXPECT_FALSE(budget.spend({killed(0)}, at(7)));
  const auto refusal = budget.spend({killed(1)}, at(7));
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->cause.rank, 1);
  EXPECT_THAT(refusal->why, HasSubstr("after step 7"));
}

TEST(RestartBudget, ForgetsDeathsWhenTheRunGetsFurther) {
  RestartBudget budget(100);
  for (int step = 1; step < 20; ++step) {
    EXPECT_FALSE(budget.spend({killed(1)}, at(step)));
    EXPECT_FALSE(budget.spend({killed(1)}, at(step)));
  }
}

// All were lost at step 20, and the run went back: it gets further than it came since.
TEST(RestartBudget, ForgetsDeathsWhenStepsAreMadeAgain) {
  RestartBudget budget(100);
  EXPECT_FALSE(budget.spend({killed(0), killed(1)}, at(20)));
  for (int step = 5; step < 20; step += 5) {
    EXPECT_FALSE(budget.spend({killed(0)}, {.now = step, .highest = 20}));
  }
  EXPECT_FALSE(budget.spend({killed(0)}, {.now = 15, .highest = 20}));
  EXPECT_TRUE(budget.spend({killed(0)}, {.now = 15, .highest = 20}));
}

// It goes back, comes to the same step, and dies of it each time.
TEST(RestartBudget, RefusesAStepThatCannotBePassed) {
  RestartBudget budget(100);
  EXPECT_FALSE(budget.spend({killed(0)}, at(20)));
  EXPECT_FALSE(budget.spend({killed(0)}, at(20)));
  EXPECT_TRUE(budget.spend({killed(0)}, at(20)));
}

TEST(RestartBudget, DoesNotRepeatWhatWouldFailAgain) {
  EXPECT_TRUE(RestartBudget(100).spend({ended(1, 2)}, at(50)));
  EXPECT_TRUE(RestartBudget(100).spend({ended(1, 3)}, at(0)));
  EXPECT_FALSE(RestartBudget(100).spend({ended(1, 3)}, at(1)));
  EXPECT_FALSE(RestartBudget(100).spend({ended(1, 4)}, at(0)));
  EXPECT_FALSE(RestartBudget(100).spend({killed(1)}, at(0)));
}

}  // namespace
}  // namespace cohort::process
