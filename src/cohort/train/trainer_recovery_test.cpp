// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/comm/local/local.h"
#include "cohort/core/error.h"
#include "cohort/core/fault_point.h"
#include "cohort/core/testing_error.h"
#include "cohort/train/testing_recovery.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using test::exact_run;
using test::Life;
using test::train_through;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Recovery : public testing::TestWithParam<int> {};

TEST_P(Recovery, WeightsAreThoseOfAnUndisturbedRun) {
  const test::World world{"shm", 3};
  test::run_ranks(world, [&](Communicator& comm, Store& store) {
    at::set_num_threads(1);
    FaultPlan faults;
    const int self = comm.rank();  // each dies once, at another place
    faults.arm({.name = "engine.action", .rank = self, .count = 40 + 60 * self});
    test::Recorder reporter;
    TrainerOptions options = exact_run(3, GetParam());
    const auto again = [&](int generation) {
      return test::connect_again(world, self, generation, store);
    };
    const DoneEvent done = train_through(comm, again, options, faults, reporter);
    EXPECT_EQ(done.steps, 8);
    EXPECT_EQ(faults.pending(), 0) << "rank " << self << " never died";
    if (comm.rank() != 0) return;
    Life calm(exact_run(1, 0), 2);
    const auto alone = make_local(1, std::chrono::seconds(60));
    calm.trainer->enter(*alone[0], nullptr);
    EXPECT_EQ(done.weights_hash, calm.trainer->fit().weights_hash);
    EXPECT_EQ(reporter.recovers.back().ranks, 3);
    for (size_t i = 1; i < reporter.recovers.size(); ++i)
      EXPECT_GT(reporter.recovers[i].generation, reporter.recovers[i - 1].generation);
  });
}

INSTANTIATE_TEST_SUITE_P(ShardLevels, Recovery, testing::Range(0, 4));

// Rank 0's weights change unseen; then the last rank dies, and of its survivors one
// shall be cloned.
void lose_a_rank_after_a_flip(
    int ranks,
    const std::function<void(const std::function<DoneEvent()>& train,
                             Communicator& comm, test::Recorder& reporter)>& body) {
  const test::World world{"shm", ranks};
  test::run_ranks(world, [&](Communicator& comm, Store& store) {
    at::set_num_threads(1);
    TrainerOptions options = exact_run(ranks, 0);
    options.step.exact = false;
    options.drift_every_steps = 100;
    FaultPlan faults;
    faults.arm({.name = "engine.action",
                .rank = 0,
                .index = 0,
                .count = 3,
                .action = Fault::Action::kFlip});
    faults.arm({.name = "engine.action", .rank = ranks - 1, .index = 0, .count = 5});
    test::Recorder reporter;
    const auto again = [&, self = comm.rank()](int generation) {
      return test::connect_again(world, self, generation, store);
    };
    body([&] { return train_through(comm, again, options, faults, reporter); }, comm,
         reporter);
  });
}

TEST(Survivors, AreClonedAsMostOfThemAre) {
  lose_a_rank_after_a_flip(
      4, [](const auto& train, Communicator& comm, test::Recorder& reporter) {
        EXPECT_EQ(train().steps, 8);
        if (comm.rank() != 0) return;
        EXPECT_THAT(reporter.notes,
                    AllOf(HasSubstr("step 4: replicas drifted apart"),
                          Not(HasSubstr("step 8: replicas drifted apart"))));
      });
}

TEST(Survivors, OfWhomNobodyKnowsWhoIsRightAreNotCloned) {
  lose_a_rank_after_a_flip(3, [](const auto& train, Communicator&, test::Recorder&) {
    EXPECT_THAT(test::message_of<CheckpointError>([&] { train(); }),
                AllOf(HasSubstr("step 4: replicas drifted apart"),
                      HasSubstr("nothing is saved to go back to")));
  });
}

}  // namespace
}  // namespace cohort
