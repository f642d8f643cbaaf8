// SPDX-License-Identifier: Apache-2.0
#include "cohort/optim/loss_scale.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "cohort/core/error.h"

namespace cohort {
namespace {

// LibTorch has the kernel of GradScaler.update(), though not the class.
TEST(LossScale, FollowsPyTorchsGradScaler) {
  LossScale scale({.initial = 1024, .growth_steps = 3});
  at::Tensor stock = at::full({}, 1024.0f), tracker = at::zeros({}, at::kInt);
  for (int step = 0; step < 40; ++step) {
    const bool finite = step % 11 != 4 && step % 17 != 5;
    scale.commit(finite);
    at::_amp_update_scale_(stock, tracker, at::full({1}, finite ? 0.0f : 1.0f), 2.0,
                           0.5, 3);
    ASSERT_EQ(scale.value(), stock.item<float>()) << step;
    ASSERT_EQ(scale.good_steps(), tracker.item<int>()) << step;
  }
}

TEST(LossScale, NeverGrowsBeyondFloat32) {
  LossScale scale({.initial = 0x1p126, .growth_steps = 1});
  for (int step = 0; step < 5; ++step) scale.commit(true);
  EXPECT_EQ(scale.value(), 0x1p127);
}

TEST(LossScale, GoesOnFromACheckpoint) {
  LossScale first({.initial = 8, .growth_steps = 4}), second({.growth_steps = 4});
  for (int step = 0; step < 3; ++step) first.commit(true);
  second.restore(first.saved());
  first.commit(true);
  second.commit(true);
  EXPECT_EQ(second.value(), 16);
  EXPECT_EQ(first.value(), 16);
}

TEST(LossScale, RefusesNumbersThatCannotWork) {
  EXPECT_THROW(LossScale({.initial = 0}), ConfigError);
  EXPECT_THROW(LossScale({.growth_steps = 0}), ConfigError);
  EXPECT_THROW(LossScale({.backoff = 1}), ConfigError);
}

}  // namespace
}  // namespace cohort
