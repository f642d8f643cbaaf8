// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/trainer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "cohort/checkpoint/safetensors.h"
#include "cohort/core/error.h"
#include "cohort/data/synthetic.h"
#include "cohort/nn/models.h"
#include "support/ranks.h"

namespace cohort {
namespace {

class Recorder final : public Reporter {
 public:
  void start(const StartEvent&) override {}
  void step(const StepEvent& event) override { steps.push_back(event); }
  void valid(const ValidEvent& event) override { valids.push_back(event); }
  void note(const std::string&) override {}
  void done(const DoneEvent& event) override { dones.push_back(event); }
  std::vector<StepEvent> steps;
  std::vector<ValidEvent> valids;
  std::vector<DoneEvent> dones;
};

// A folder of its own that goes with the test.
struct Folder {
  Folder() {
    std::string pattern = testing::TempDir() + "trainerXXXXXX";
    path = ::mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

TrainerOptions small_run(int ranks) {
  TrainerOptions options;
  options.epochs = 2;
  options.batch = 30;  // 100 samples: 4 steps an epoch, the last with 10
  options.slices = 6;
  options.layout.dp = ranks;
  options.rate.base = 0.02;
  options.started = std::chrono::system_clock::now();
  return options;
}

struct SmallRun {
  std::unique_ptr<Dataset> data = make_synthetic({.size = 100, .shape = {1, 28, 28}});
  std::unique_ptr<Dataset> valid = make_synthetic({.size = 37, .shape = {1, 28, 28}});
  Chain chain = make_cnn({.width = 4}, {.seed = 2});
  Recorder recorder;
  std::atomic<int> stop{0};

  DoneEvent fit(Communicator& comm, const TrainerOptions& options) {
    Trainer trainer(chain, *data, valid.get(), comm, options,
                    comm.rank() == 0 ? &recorder : nullptr, stop);
    return trainer.fit();
  }
};

class TrainerTest : public testing::TestWithParam<int> {
 protected:
  test::World world() const { return {.backend = "local", .size = GetParam()}; }
};

TEST_P(TrainerTest, ReportsEveryCommittedStepOnceAndInOrder) {
  test::run_ranks(world(), [](Communicator& comm) {
    SmallRun run;
    const DoneEvent done = run.fit(comm, small_run(comm.size()));
    EXPECT_EQ(done.steps, 8);
    EXPECT_EQ(done.epoch, 2);
    if (comm.rank() != 0) return;
    ASSERT_EQ(run.recorder.steps.size(), 8u);
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(run.recorder.steps[i].step, static_cast<int64_t>(i) + 1);
      EXPECT_EQ(run.recorder.steps[i].epoch, static_cast<int64_t>(i) / 4 + 1);
    }
    EXPECT_EQ(run.recorder.valids.size(), 2u);
    EXPECT_EQ(run.recorder.dones.size(), 1u);
    EXPECT_EQ(run.recorder.dones[0].weights_hash.size(), 16u);
  });
}

TEST_P(TrainerTest, LossAndAccuracyDoNotDependOnTheNumberOfRanks) {
  test::run_ranks(world(), [](Communicator& comm) {
    SmallRun run;
    const DoneEvent done = run.fit(comm, small_run(comm.size()));
    SmallRun alone;
    auto solo = comm.split(comm.rank());
    const DoneEvent single = alone.fit(*solo, small_run(1));
    EXPECT_NEAR(done.loss, single.loss, 1e-4);
    EXPECT_NEAR(*done.accuracy, *single.accuracy, 0.03);
  });
}

TEST_P(TrainerTest, SampleLogHasEachSampleOnceAnEpoch) {
  const Folder folder;
  const std::string path = folder.path + "/samples";
  test::run_ranks(world(), [&](Communicator& comm) {
    SmallRun run;
    TrainerOptions options = small_run(comm.size());
    options.sample_log = path;
    run.fit(comm, options);
  });
  std::map<int64_t, std::multiset<int64_t>> by_epoch;
  std::set<int64_t> ranks;
  std::ifstream file(path);
  for (int64_t epoch, step, rank, id; file >> epoch >> step >> rank >> id;) {
    by_epoch[epoch].insert(id);
    ranks.insert(rank);
    EXPECT_EQ((step - 1) / 4 + 1, epoch);
  }
  EXPECT_EQ(by_epoch.size(), 2u);
  for (const auto& [epoch, ids] : by_epoch) {
    EXPECT_EQ(ids.size(), 100u);
    EXPECT_EQ(std::set<int64_t>(ids.begin(), ids.end()).size(), 100u);
  }
  EXPECT_EQ(ranks.size(), static_cast<size_t>(GetParam()));
}

TEST_P(TrainerTest, SavedWeightsAreThoseOfTheHash) {
  const Folder folder;
  test::run_ranks(world(), [&](Communicator& comm) {
    SmallRun run;
    TrainerOptions options = small_run(comm.size());
    options.save_initial = folder.path + "/initial";
    options.save_final = folder.path + "/final";
    const DoneEvent done = run.fit(comm, options);
    if (comm.rank() != 0) return;
    EXPECT_EQ(weights_hash(read_safetensors(options.save_final).tensors),
              done.weights_hash);
    EXPECT_NE(weights_hash(read_safetensors(options.save_initial).tensors),
              done.weights_hash);
  });
}

TEST_P(TrainerTest, StopOnOneRankStopsAllAfterTheStep) {
  test::run_ranks(world(), [](Communicator& comm) {
    SmallRun run;
    if (comm.rank() == comm.size() - 1) run.stop = 15;
    const DoneEvent done = run.fit(comm, small_run(comm.size()));
    EXPECT_EQ(done.steps, 1);
    EXPECT_NE(done.stop_signal, 0);
  });
}

TEST_P(TrainerTest, ALossThatIsNoNumberStopsEveryRank) {
  test::run_ranks(world(), [](Communicator& comm) {
    SmallRun run;
    TrainerOptions options = small_run(comm.size());
    options.rate.base = 1e30;
    try {
      run.fit(comm, options);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("the gradient of"));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, TrainerTest, testing::Values(1, 2, 3));

TEST(Trainer, RefusesALayoutThatIsNotTheWorldAndABatchBelowItsSlices) {
  test::run_ranks({.backend = "local", .size = 1}, [](Communicator& comm) {
    SmallRun run;
    EXPECT_THROW(run.fit(comm, small_run(2)), ConfigError);
    TrainerOptions options = small_run(1);
    options.batch = 5;
    EXPECT_THROW(run.fit(comm, options), ConfigError);
  });
}

}  // namespace
}  // namespace cohort
