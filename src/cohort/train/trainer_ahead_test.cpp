// SPDX-License-Identifier: Apache-2.0
// A trainer that starts a step before it knows the result of the one before: with the
// host in the place of a device.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/comm/local/local.h"
#include "cohort/core/testing_folder.h"
#include "cohort/train/testing_recovery.h"
#include "cohort/train/testing_small_run.h"
#include "support/forwarding_communicator.h"
#include "support/ranks.h"

namespace cohort {
namespace {

TrainerOptions ahead_options(ComputeOn on) {
  TrainerOptions options = test::small_run(1);
  options.execute.compute_on = on;
  return options;
}

struct AheadRun : test::SmallRun {
  DoneEvent fit(const TrainerOptions& options) {
    DoneEvent done;
    test::run_local_ranks(
        1, 0, [&](Communicator& comm) { done = SmallRun::fit(comm, options); });
    return done;
  }

  std::vector<double> losses() const {
    std::vector<double> all;
    for (const auto& step : recorder.steps) all.push_back(step.loss);
    return all;
  }
};

TEST(TrainerAhead, TrainsAsOneThatWaitsForEachStep) {
  AheadRun waits, ahead;
  const DoneEvent host = waits.fit(ahead_options(ComputeOn::kHost));
  const DoneEvent device = ahead.fit(ahead_options(ComputeOn::kStaged));
  EXPECT_EQ(device.weights_hash, host.weights_hash);
  EXPECT_EQ(device.steps, 8);
  EXPECT_EQ(ahead.losses(), waits.losses());
  EXPECT_EQ(ahead.recorder.valids.size(), 2u);
  EXPECT_EQ(device.accuracy, host.accuracy);
}

// State lies on the device, whatever ranks have between them.
TEST(TrainerAhead, SeveralRanksHaveTheWeightsOfOneWithExactSums) {
  for (const int shard : {0, 3}) {
    TrainerOptions options = ahead_options(ComputeOn::kStaged);
    options.step.exact = true;
    AheadRun alone;
    const auto expected = alone.fit(options).weights_hash;
    options.layout = {.dp = 2, .shard = shard};
    test::run_local_ranks(2, 0, [&](Communicator& comm) {
      test::SmallRun run;
      const DoneEvent done = run.fit(comm, options);
      EXPECT_EQ(done.weights_hash, expected) << shard;
    });
  }
}

// A step that is under way when one is told to stop is the last.
TEST(TrainerAhead, StopsBehindTheStepThatIsUnderWay) {
  AheadRun run;
  run.stop = 15;
  const DoneEvent done = run.fit(ahead_options(ComputeOn::kStaged));
  EXPECT_EQ(done.stop_signal, 15);
  EXPECT_EQ(done.steps, 2);
  EXPECT_EQ(run.recorder.steps.size(), 2u);
}

// What a file gets is the state of its own step.
TEST(TrainerAhead, CheckpointsAreThoseOfTheirStep) {
  const test::TempFolder folder;
  TrainerOptions options = ahead_options(ComputeOn::kStaged);
  options.backup = {.dir = folder / "checkpoints", .every_steps = 3};
  options.max_steps = 5;
  AheadRun first;
  first.fit(options);
  options.backup.resume = true;
  options.max_steps = 8;
  AheadRun resumed, whole;
  EXPECT_EQ(resumed.fit(options).weights_hash,
            whole.fit(ahead_options(ComputeOn::kHost)).weights_hash);
}

// Ranks whose state is where a device would have it.
class TakesDevice final : public test::ForwardingCommunicator {
 public:
  explicit TakesDevice(Communicator& inner) : ForwardingCommunicator(inner) {}
  explicit TakesDevice(std::unique_ptr<Communicator> own)
      : ForwardingCommunicator(*own), own_(std::move(own)) {}

  bool takes_cuda() const override { return true; }

 private:
  std::unique_ptr<Communicator> own_;
};

TrainerOptions elastic_ahead_options(int shard) {
  TrainerOptions options = test::exact_run(3, shard);
  options.execute.compute_on = ComputeOn::kStaged;
  return options;
}

std::string calm_hash() {
  test::Life calm(test::exact_run(1, 0), 2);
  const auto alone = make_local(1, std::chrono::seconds(60));
  calm.trainer->enter(*alone[0], nullptr);
  return calm.trainer->fit().weights_hash;
}

// Whether ranks exchange memory of the device in that world; else the host has their
// state.
using IsOnDevice = std::function<bool(int generation)>;

// Each rank dies once, at another place: in forwards that are ahead, and behind them.
void lose_every_rank(int shard, int count, const IsOnDevice& is_on_device) {
  const test::World world{"shm", 3};
  test::run_ranks(world, [&](Communicator& comm, Store& store) {
    at::set_num_threads(1);
    const int self = comm.rank();
    FaultPlan faults;
    faults.arm({.name = "engine.action", .rank = self, .count = count + 60 * self});
    TrainerOptions options = elastic_ahead_options(shard);
    const auto connect = [&](int generation) -> std::unique_ptr<Communicator> {
      auto made = test::connect_again(world, self, 1 + generation, store);
      if (!is_on_device(generation)) return made;
      return std::make_unique<TakesDevice>(std::move(made));
    };
    const auto first = connect(0);
    test::Recorder reporter;
    const DoneEvent done =
        test::train_through(*first, connect, options, faults, reporter);
    EXPECT_EQ(done.steps, 8);
    EXPECT_EQ(faults.pending(), 0) << "rank " << self << " never died";
    EXPECT_EQ(done.weights_hash, calm_hash());
  });
}

class ElasticAheadRun : public testing::TestWithParam<int> {};

TEST_P(ElasticAheadRun, WeightsAreThoseOfAnUndisturbedRun) {
  for (const int count : {40, 47, 54})
    lose_every_rank(GetParam(), count, [](int) { return true; });
}

TEST_P(ElasticAheadRun, TheHostMayHaveTheStateInSomeWorldsOrInAll) {
  lose_every_rank(GetParam(), 40, [](int) { return false; });
  lose_every_rank(GetParam(), 47, [](int generation) { return generation % 2 == 0; });
}

INSTANTIATE_TEST_SUITE_P(ShardLevels, ElasticAheadRun, testing::Range(0, 4));

// One more than a run that waits for each: so it does not.
TEST(ElasticAhead, StopsBehindTheStepThatIsUnderWay) {
  test::run_ranks({"shm", 2}, [&](Communicator& comm) {
    TrainerOptions options = elastic_ahead_options(1);
    options.layout.dp = 2;
    test::Life life(options, 2);
    TakesDevice covered(comm);
    life.stop = 15;
    life.trainer->enter(covered, nullptr);
    const DoneEvent done = life.trainer->fit();
    EXPECT_EQ(done.stop_signal, 15);
    EXPECT_EQ(done.steps, 2);
  });
}

}  // namespace
}  // namespace cohort
