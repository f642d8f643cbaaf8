// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/step_sums.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using SampleIds = std::vector<int64_t>;

class StepSumsTest : public testing::TestWithParam<int> {
 protected:
  test::World world() const { return {.backend = "local", .size = GetParam()}; }
};

TEST_P(StepSumsTest, EveryRankKnowsWhatAllDrewToTheLastBit) {
  test::run_ranks(world(), [](Communicator& comm) {
    const uint64_t key = ~uint64_t{0};
    StepSums sums(comm, 0);
    for (int step = 0; step < 3; ++step) {
      sums.clear();
      sums.add_loss(0.5, 2);
      if (comm.rank() + 1 == comm.size()) sums.ask_to_stop();
      for (int64_t slice = 0; slice < 3; ++slice)
        sums.draw(key, SampleIds{3 * comm.rank() + slice, 1000 + step});
      sums.reduce().wait();
      SampleSum all;
      for (int64_t id = 0; id < 3 * comm.size(); ++id)
        all += sum_samples(key, SampleIds{id, 1000 + step});
      EXPECT_EQ(sums.drawn(), all);
      EXPECT_EQ(sums.loss_sum(), 0.5 * comm.size());
      EXPECT_EQ(sums.count(), 2.0 * comm.size());
      EXPECT_TRUE(sums.asked_to_stop());
      EXPECT_TRUE(sums.listed().empty());
    }
  });
}

TEST_P(StepSumsTest, ACountMayBeComputedBesideTheLoss) {
  test::run_ranks(world(), [](Communicator& comm) {
    StepSums sums(comm, 0);
    sums.clear();
    sums.add_loss(WeightedLoss{.sum = at::scalar_tensor(0.5),
                               .count = 99,
                               .counted = at::scalar_tensor(3, at::kDouble)});
    sums.add_loss(WeightedLoss{.sum = at::scalar_tensor(1.5), .count = 4});
    sums.reduce().wait();
    EXPECT_EQ(sums.loss_sum(), 2.0 * comm.size());
    EXPECT_EQ(sums.count(), 7.0 * comm.size());
  });
}

TEST_P(StepSumsTest, EveryRankKnowsTheIdsThatEachDrewIfTheyAreListed) {
  test::run_ranks(world(), [](Communicator& comm) {
    StepSums sums(comm, 4);
    sums.draw(1, SampleIds{9, 9, 9, 9});
    sums.clear();  // a step that was abandoned leaves nothing behind
    sums.draw(1, SampleIds{comm.rank()});
    if (comm.rank() % 2 == 0) sums.draw(1, SampleIds{0, int64_t{1} << 50});
    sums.reduce().wait();
    const DrawnSamples listed = sums.listed();
    ASSERT_EQ(listed.size(), static_cast<size_t>(comm.size()));
    for (int64_t rank = 0; rank < comm.size(); ++rank)
      EXPECT_EQ(listed[rank], rank % 2 == 0 ? (SampleIds{rank, 0, int64_t{1} << 50})
                                            : SampleIds{rank});
  });
}

TEST_P(StepSumsTest, ARankThatDrawsMoreThanAStepHasIsABug) {
  test::run_ranks(world(), [](Communicator& comm) {
    StepSums sums(comm, 2);
    EXPECT_THROW(sums.draw(1, SampleIds{1, 2, 3}), BugError);
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, StepSumsTest, testing::Values(1, 2, 3));

}  // namespace
}  // namespace cohort
