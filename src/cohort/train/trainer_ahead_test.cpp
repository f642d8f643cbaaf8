// SPDX-License-Identifier: Apache-2.0
// A trainer that starts a step before it knows the result of the one before: with the
// host in the place of a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/core/testing_folder.h"
#include "cohort/train/testing_small_run.h"
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
  options.keep = {.dir = folder / "checkpoints", .every_steps = 3};
  options.max_steps = 5;
  AheadRun first;
  first.fit(options);
  options.keep.resume = true;
  options.max_steps = 8;
  AheadRun resumed, whole;
  EXPECT_EQ(resumed.fit(options).weights_hash,
            whole.fit(ahead_options(ComputeOn::kHost)).weights_hash);
}

}  // namespace
}  // namespace cohort
