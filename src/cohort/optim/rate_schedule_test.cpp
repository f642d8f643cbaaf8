// SPDX-License-Identifier: Apache-2.0
#include "cohort/optim/rate_schedule.h"

#include <gtest/gtest.h>

#include "cohort/core/error.h"

namespace cohort {
namespace {

TEST(RateSchedule, WarmsUpLinearlyAndStaysThere) {
  const RateSchedule rate({.base = 0.4, .warmup_steps = 4});
  EXPECT_DOUBLE_EQ(rate.at(0), 0.1);
  EXPECT_DOUBLE_EQ(rate.at(1), 0.2);
  EXPECT_DOUBLE_EQ(rate.at(3), 0.4);
  EXPECT_DOUBLE_EQ(rate.at(1000), 0.4);
}

TEST(RateSchedule, FollowsTheBatch) {
  RateOptions options{.base = 0.1, .batch = 1024, .reference_batch = 256};
  EXPECT_DOUBLE_EQ(RateSchedule(options).at(0), 0.1);
  options.scale = "linear";
  EXPECT_DOUBLE_EQ(RateSchedule(options).at(0), 0.4);
  options.scale = "sqrt";
  EXPECT_DOUBLE_EQ(RateSchedule(options).at(0), 0.2);
}

TEST(RateSchedule, UnknownNamesAreRefused) {
  EXPECT_THROW(RateSchedule({.name = "cosinus"}), ConfigError);
  EXPECT_THROW(RateSchedule({.scale = "cubic"}), ConfigError);
}

}  // namespace
}  // namespace cohort
