// SPDX-License-Identifier: Apache-2.0
#include "cohort/observe/meter.h"

#include <gtest/gtest.h>

#include <cmath>

namespace cohort {
namespace {

TEST(Meter, MeanWeighs) {
  MeanMeter meter;
  EXPECT_TRUE(std::isnan(meter.mean()));
  meter.add(1, 3);
  meter.add(5, 1);
  meter.add(NAN, 0);  // an empty batch
  EXPECT_EQ(meter.mean(), 2);
  EXPECT_EQ(meter.weight(), 4);
  meter.reset();
  EXPECT_TRUE(std::isnan(meter.mean()));
}

TEST(Meter, EmaStartsAtTheFirstValue) {
  EmaMeter meter(0.5);
  EXPECT_TRUE(std::isnan(meter.value()));
  meter.add(8);
  EXPECT_EQ(meter.value(), 8);
  meter.add(4);
  EXPECT_EQ(meter.value(), 6);
}

TEST(Meter, RateLeavesTheWarmUpOut) {
  RateMeter meter(2);
  EXPECT_TRUE(std::isnan(meter.total()));
  meter.add(10, 100);
  EXPECT_EQ(meter.total(), 0.1);  // better than nothing
  meter.add(10, 50);
  meter.add(10, 1);
  meter.add(20, 1);
  EXPECT_EQ(meter.total(), 15);
}

TEST(Meter, RecentRateFollowsTheLastCalls) {
  RateMeter meter(0, 0.5);
  meter.add(100, 1);
  EXPECT_EQ(meter.recent(), 100);
  for (int i = 0; i < 40; ++i) meter.add(100, 2);
  EXPECT_NEAR(meter.recent(), 50, 1e-6);
}

TEST(Meter, SplitIsTheMeanAfterTheWarmUp) {
  SplitMeter meter(1);
  EXPECT_EQ(meter.mean().sum(), 0);
  meter.add({.data = 100});
  EXPECT_EQ(meter.mean().data, 100);
  meter.add({.data = 1, .forward = 2, .backward = 4, .wait = 6, .update = 8});
  meter.add({.data = 3, .forward = 4, .backward = 6, .wait = 8, .update = 10});
  const StepSplit mean = meter.mean();
  EXPECT_EQ(mean.data, 2);
  EXPECT_EQ(mean.forward, 3);
  EXPECT_EQ(mean.backward, 5);
  EXPECT_EQ(mean.wait, 7);
  EXPECT_EQ(mean.update, 9);
  EXPECT_EQ(mean.sum(), 26);
  EXPECT_EQ(meter.steps(), 3);
}

}  // namespace
}  // namespace cohort
