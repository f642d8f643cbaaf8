// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/compute_threads.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

// Operations in forward of one sample.
constexpr double kFashionMnist = 8.48e6;
constexpr double kCifarResNet50V2 = 2.6e9;
constexpr double kMlp = 1.34e6;

TEST(ComputeThreads, FollowWhatTheModelGains) {
  EXPECT_EQ(compute_threads(128 * kFashionMnist, 16), 16);
  EXPECT_EQ(compute_threads(32 * kFashionMnist, 8), 4);
  EXPECT_EQ(compute_threads(128 * kMlp, 16), 3);
  EXPECT_EQ(compute_threads(64 * kCifarResNet50V2, 8), 8);
  EXPECT_EQ(compute_threads(128 * kCifarResNet50V2, 192), 192);
}

TEST(ComputeThreads, AreAtLeastOneAndNoMoreThanThereAre) {
  EXPECT_EQ(compute_threads(1, 16), 1);
  EXPECT_EQ(compute_threads(128 * kFashionMnist, 2), 2);
  EXPECT_EQ(compute_threads(1e15, 1), 1);
  EXPECT_EQ(compute_threads(1e15, 0), 1);
  EXPECT_EQ(compute_threads(1e300, 16), 16);
}

TEST(ComputeThreads, OfAModelThatCouldNotBeCountedAreAll) {
  EXPECT_EQ(compute_threads(0, 16), 16);
}

}  // namespace
}  // namespace cohort
