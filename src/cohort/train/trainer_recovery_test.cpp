// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "cohort/comm/local/local.h"
#include "cohort/core/error.h"
#include "cohort/core/fault_point.h"
#include "cohort/data/synthetic.h"
#include "cohort/nn/models.h"
#include "cohort/train/testing_reporter.h"
#include "cohort/train/trainer.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TrainerOptions exact_run(int ranks, int shard) {
  TrainerOptions options;
  options.epochs = 2;
  options.batch = 30;  // 100 samples: 4 steps an epoch
  options.slices = 6;
  options.layout = {.dp = ranks, .shard = shard};
  options.rate.base = 0.02;
  options.step.exact = true;
  options.step.elastic = true;
  options.elastic = true;
  options.started = std::chrono::system_clock::now();
  return options;
}

// One rank as a process would be: when it dies, all it had is gone.
struct Life {
  std::unique_ptr<Dataset> data = make_synthetic({.size = 100, .shape = {1, 28, 28}});
  std::unique_ptr<Dataset> valid = make_synthetic({.size = 37, .shape = {1, 28, 28}});
  Chain chain;
  std::atomic<int> stop{0};
  std::unique_ptr<Trainer> trainer;

  Life(const TrainerOptions& options, uint64_t seed)
      : chain(make_cnn({.width = 2}, {.seed = seed})) {
    trainer = std::make_unique<Trainer>(chain, *data, valid.get(), options, stop);
  }
};

// Trains through every fault of `faults`, in a new world after each.
DoneEvent train_through(const test::World& world, Communicator& first, Store& store,
                        TrainerOptions options, FaultPlan& faults,
                        test::Recorder& reporter) {
  options.execute.faults = &faults;
  auto life = std::make_unique<Life>(options, 2);
  std::vector<std::unique_ptr<Communicator>> worlds;
  Communicator* comm = &first;
  for (int generation = 1;; ++generation) {
    try {
      life->trainer->enter(*comm, comm->rank() == 0 ? &reporter : nullptr);
      return life->trainer->fit();
    } catch (const InjectedFault& fault) {
      comm->abort(fault.what());
      life = std::make_unique<Life>(options, 77);  // other weights: none may be kept
    } catch (const CommError& error) {
      comm->abort(error.what());
    }
    worlds.push_back(test::connect_again(world, first.rank(), generation, store));
    comm = worlds.back().get();
  }
}

class Recovery : public testing::TestWithParam<int> {};

TEST_P(Recovery, WeightsAreThoseOfAnUndisturbedRun) {
  const test::World world{"shm", 3};
  test::run_ranks(world, [&](Communicator& comm, Store& store) {
    at::set_num_threads(1);
    FaultPlan faults;
    const int self = comm.rank();  // each dies once, at another place
    faults.arm({.name = "engine.action", .rank = self, .count = 40 + 60 * self});
    test::Recorder reporter;
    const DoneEvent done =
        train_through(world, comm, store, exact_run(3, GetParam()), faults, reporter);
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
    body([&] { return train_through(world, comm, store, options, faults, reporter); },
         comm, reporter);
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
    try {
      train();
      ADD_FAILURE() << "went on with one of them";
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("step 4: replicas drifted apart"),
                                      HasSubstr("nothing is saved to go back to")));
    }
  });
}

}  // namespace
}  // namespace cohort
