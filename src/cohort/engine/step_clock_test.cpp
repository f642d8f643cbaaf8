// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/step_clock.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace cohort {
namespace {

Role list_with_a_wait() {
  Role role;
  role.actions = {{.kind = ActionKind::kForward},
                  {.kind = ActionKind::kForward},
                  {.kind = ActionKind::kBackward},
                  {.kind = ActionKind::kReduce, .lane = 1, .waits = {2}},
                  {.kind = ActionKind::kFree},
                  {.kind = ActionKind::kUpdate, .waits = {3}},
                  {.kind = ActionKind::kCommit}};
  return role;
}

// Forward begins with the first mark, backward with the next; then the wait, and behind
// it the update.
TEST(StepClock, TimesBelongToThePartThatIsUnderWay) {
  const auto kernels = make_host_kernels();
  StepClock clock(list_with_a_wait(), *kernels);
  ASSERT_EQ(clock.times().numel(), 5);
  const StepSplit split =
      clock.split_of(at::tensor({1'000, 3'000, 8'000, 9'000, 13'000}, at::kLong), 7e-6);
  EXPECT_DOUBLE_EQ(split.data, 7e-6);
  EXPECT_DOUBLE_EQ(split.forward, 2e-6);
  EXPECT_DOUBLE_EQ(split.backward, 5e-6);
  EXPECT_DOUBLE_EQ(split.wait, 1e-6);
  EXPECT_DOUBLE_EQ(split.update, 4e-6);
}

// What the device waits for between two stretches is the host.
TEST(StepClock, ThePauseBehindWhatRunsAheadIsAWait) {
  const auto kernels = make_host_kernels();
  StepClock clock(list_with_a_wait(), *kernels, /*ahead=*/2);
  ASSERT_EQ(clock.times().numel(), 6);
  const StepSplit split = clock.split_of(
      at::tensor({1'000, 3'000, 3'500, 8'000, 9'000, 13'000}, at::kLong), 0);
  EXPECT_DOUBLE_EQ(split.forward, 2e-6);
  EXPECT_DOUBLE_EQ(split.backward, 4.5e-6);
  EXPECT_DOUBLE_EQ(split.wait, 1.5e-6);
  EXPECT_DOUBLE_EQ(split.update, 4e-6);
}

TEST(StepClock, LoadingCountsAsFarAsTheDeviceHasWaited) {
  const auto kernels = make_host_kernels();
  StepClock clock(list_with_a_wait(), *kernels);
  const Tensor times = at::tensor({0, 1'000, 2'000, 3'000, 4'000}, at::kLong);
  const auto data = [&](int64_t begin, double loading) {
    return clock.split_of(times.add(begin), loading).data;
  };
  data(0, 0);
  EXPECT_DOUBLE_EQ(data(5'000, 9e-6), 1e-6);  // the rest was hidden
  EXPECT_DOUBLE_EQ(data(99'000, 9e-6), 9e-6);
}

TEST(StepClock, TheTimeIsWrittenWhereAPartBegins) {
  const auto kernels = make_host_kernels();
  const Role role = list_with_a_wait();
  StepClock clock(role, *kernels);
  for (int i = 0; i < static_cast<int>(role.actions.size()); ++i) {
    if (role.actions[i].lane != kComputeLane) continue;
    clock.reach(i);
    clock.act(i);
  }
  clock.end();
  const Tensor steps = clock.times().diff();
  EXPECT_GT(clock.times()[0].item<int64_t>(), 0);
  EXPECT_TRUE((steps >= 0).all().item<bool>()) << steps;
}

}  // namespace
}  // namespace cohort
