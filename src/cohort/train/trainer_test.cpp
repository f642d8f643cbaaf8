// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <thread>

#include "cohort/checkpoint/safetensors.h"
#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_folder.h"
#include "cohort/data/synthetic.h"
#include "cohort/elastic/history_check.h"
#include "cohort/engine/action_watch.h"
#include "cohort/nn/models.h"
#include "cohort/step/weights_hash.h"
#include "cohort/train/testing_small_run.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using test::small_run;
using test::SmallRun;

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

// The clock on the wall was set back by an hour since the command was started.
TEST_P(TrainerTest, AClockThatStepsBackSpoilsNoDuration) {
  test::run_ranks(world(), [](Communicator& comm) {
    SmallRun run;
    TrainerOptions options = small_run(comm.size());
    options.started += std::chrono::hours(1);
    options.max_steps = 1;
    EXPECT_GT(run.fit(comm, options).first_step_s, 0);
  });
}

TEST_P(TrainerTest, LossAndAccuracyDoNotDependOnTheNumberOfRanks) {
  test::run_ranks(world(), [](Communicator& comm) {
    SmallRun run;
    const DoneEvent done = run.fit(comm, small_run(comm.size()));
    SmallRun alone;
    auto solo = comm.split(comm.rank());
    const DoneEvent single = alone.fit(*solo, small_run(1));
    EXPECT_NEAR(*done.loss, *single.loss, 1e-4);
    EXPECT_NEAR(*done.accuracy, *single.accuracy, 0.03);
  });
}

// Counts how often each sample is asked for.
class CountedDataset final : public Dataset {
 public:
  explicit CountedDataset(std::unique_ptr<Dataset> data)
      : counts(at::zeros({data->size()}, at::kLong)), data_(std::move(data)) {}
  int64_t size() const override { return data_->size(); }
  std::span<const std::string> fields() const override { return data_->fields(); }
  Batch gather(std::span<const int64_t> ids,
               std::span<const std::string> fields) const override {
    for (const int64_t id : ids) counts[id] += 1;
    return data_->gather(ids, fields);
  }
  std::string describe() const override { return data_->describe(); }

  mutable Tensor counts;

 private:
  std::unique_ptr<Dataset> data_;
};

TEST_P(TrainerTest, AValidationLooksAtEachSampleOnce) {
  test::run_ranks(world(), [](Communicator& comm) {
    SmallRun run;
    auto counted = std::make_unique<CountedDataset>(std::move(run.valid));
    Tensor& counts = counted->counts;
    run.valid = std::move(counted);
    TrainerOptions options = small_run(comm.size());
    options.epochs = 1;
    run.fit(comm, options);
    comm.all_reduce(counts, ReduceOp::kSum).wait();
    EXPECT_TRUE(at::equal(counts, at::ones_like(counts))) << counts;
  });
}

TEST_P(TrainerTest, SampleLogHasEachSampleOnceAnEpoch) {
  const test::TempFolder folder;
  const std::string path = folder / "samples";
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

// A sample that is not the step's is found before the vote, on every rank.
TEST_P(TrainerTest, AStepWithAnotherSampleIsNotCommitted) {
  for (const bool elastic : {false, true}) {
    const test::TempFolder folder;
    test::run_ranks(world(), [&](Communicator& comm) {
      SmallRun run;
      FaultPlan faults;
      faults.arm({.name = "train.batch",
                  .rank = comm.size() - 1,
                  .index = 5,  // a slice of the last rank's
                  .count = 3,
                  .action = Fault::Action::kFlip});
      TrainerOptions options = small_run(comm.size());
      run.services.faults = &faults;
      options.elastic = options.step.elastic = options.step.vote = elastic;
      options.history = folder / "history";
      options.sample_log = folder / "samples";
      EXPECT_THAT(test::message_of<BugError>([&] { run.fit(comm, options); }),
                  testing::HasSubstr("step 3: the ranks drew 30 samples"));
      EXPECT_EQ(run.recorder.steps.size(), comm.rank() == 0 ? 2u : 0u);
    });
    const HistoryReport report = verify_history(folder / "history");
    EXPECT_TRUE(report.holds());
    EXPECT_EQ(report.steps, 2);
    EXPECT_EQ(report.steps_drawn, 2);
    std::ifstream log(folder / "samples");
    EXPECT_EQ(std::count(std::istreambuf_iterator<char>(log), {}, '\n'), 60);
  }
}

TEST(Rate, OfADecayEndsWithTheLastEpoch) {
  test::run_ranks({.backend = "local", .size = 1}, [](Communicator& comm) {
    SmallRun run;
    TrainerOptions options = small_run(1);
    options.rate.name = "linear";
    options.max_steps = 5;  // the rate is planned for 8
    run.fit(comm, options);
    ASSERT_EQ(run.recorder.steps.size(), 5u);
    EXPECT_NEAR(run.recorder.steps.back().rate, 0.02 * 4 / 8, 1e-9);
  });
}

// Calls back when a step of this rank begins to compute, with its number from 1.
class OnStep final : public ActionWatch {
 public:
  explicit OnStep(std::function<void(int step)> call) : call_(std::move(call)) {}
  void begin(const Action& action) override {
    if (action.kind == ActionKind::kForward && action.block == 0 && action.slice == 0)
      call_(++steps_);
  }
  void end(const Action&) override {}

 private:
  std::function<void(int)> call_;
  int steps_ = 0;
};

// It is looked for every fifty steps, and named when it was slow twice.
TEST(SlowRank, IsNamedAfterAHundredSteps) {
  test::run_ranks({.backend = "local", .size = 2}, [](Communicator& comm) {
    SmallRun run;
    TrainerOptions options = small_run(comm.size());
    options.epochs = 26;  // 104 steps
    // As slow again as the others, however long they take on a machine with other work.
    using Clock = std::chrono::steady_clock;
    Clock::time_point last = Clock::now();
    OnStep slow([&](int) {
      std::this_thread::sleep_for(
          std::max<Clock::duration>(Clock::now() - last, std::chrono::milliseconds(9)));
      last = Clock::now();
    });
    if (comm.rank() == 1) run.services.watch = &slow;
    run.fit(comm, options);
    if (comm.rank() != 0) return;
    EXPECT_THAT(run.recorder.notes, testing::HasSubstr("rank 1 is slow"));
    EXPECT_THAT(run.recorder.noted_after, testing::ElementsAre(100));
  });
}

TEST_P(TrainerTest, AugmentsEachSampleOnceAnEpochInTraining) {
  test::run_ranks(world(), [](Communicator& comm) {
    SmallRun run;
    TrainerOptions options = small_run(comm.size());
    Tensor seen = at::zeros({2, 100}, at::kLong);
    run.services.augment = [&](Batch& batch, int64_t epoch) {
      EXPECT_EQ(batch.count, static_cast<int64_t>(batch.ids.size()));
      for (const int64_t id : batch.ids) seen[epoch][id] += 1;
      batch.at("input").zero_();
    };
    const DoneEvent done = run.fit(comm, options);
    comm.all_reduce(seen, ReduceOp::kSum).wait();
    EXPECT_TRUE(seen.eq(1).all().item<bool>()) << seen;
    // Black images teach nothing but how frequent a class is.
    EXPECT_NEAR(*done.loss, std::log(10), 0.4);
  });
}

// Two epochs: another crop in each.
TEST_P(TrainerTest, CropsAndFlipsAreTheSameOnAnyNumberOfRanks) {
  test::run_ranks(world(), [](Communicator& comm) {
    at::set_num_threads(1);
    const auto hash = [](Communicator& ranks, const Augment& augment) {
      SmallRun run;
      TrainerOptions options = small_run(ranks.size());
      options.step.exact = true;
      run.services.augment = augment;
      return run.fit(ranks, options).weights_hash;
    };
    const Augment augment = crop_and_flip({.seed = 4});
    const Augment first_epoch = [&](Batch& batch, int64_t) { augment(batch, 0); };
    const std::string together = hash(comm, augment);
    auto solo = comm.split(comm.rank());
    const std::string alone = hash(*solo, augment);
    EXPECT_EQ(together, alone);
    if (comm.rank() != 0) return;
    EXPECT_NE(alone, hash(*solo, nullptr));
    EXPECT_NE(alone, hash(*solo, first_epoch));
  });
}

TEST_P(TrainerTest, SavedWeightsAreThoseOfTheHash) {
  const test::TempFolder folder;
  test::run_ranks(world(), [&](Communicator& comm) {
    SmallRun run;
    TrainerOptions options = small_run(comm.size());
    options.save_initial = folder / "initial";
    options.save_final = folder / "final";
    const DoneEvent done = run.fit(comm, options);  // every rank has the hash
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
    EXPECT_THAT(test::message_of<Error>([&] { run.fit(comm, options); }),
                testing::HasSubstr("the gradient of"));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, TrainerTest, testing::Values(1, 2, 3));

// Clipping keeps update and reduction apart, so that each rank updates all weights.
TEST(Trainer, ComparesReplicasEverySoManySteps) {
  test::run_ranks({.backend = "local", .size = 3}, [](Communicator& comm) {
    SmallRun run;
    TrainerOptions options = small_run(3);
    EXPECT_GT(options.drift_every_steps, 0);  // on unless turned off
    options.drift_every_steps = 2;
    options.step.clip = true;
    options.execute.clip = 1e9;
    OnStep damaging([&](int step) {  // a weight of this rank
      if (step == 3) run.chain.parameters()[3].tensor.detach()[0] += 1;
    });
    if (comm.rank() == 1) run.services.watch = &damaging;
    Trainer trainer(run.chain, *run.data, nullptr, options, run.stop, run.services);
    EXPECT_THAT(test::message_of<Error>([&] {
                  trainer.enter(comm, nullptr);
                  trainer.fit();
                }),
                testing::HasSubstr("step 4: replicas drifted apart: "
                                   "c2.bias of rank 1 differs"));
  });
}

TEST(Trainer, SaysWhichBatchFitsInMemory) {
  test::run_ranks({.backend = "local", .size = 1}, [](Communicator& comm) {
    SmallRun run;
    // Activations are most of what it needs, on every kind of processor.
    run.chain = make_mlp({.width = 64, .depth = 12}, {.seed = 2});
    run.data = make_synthetic({.size = 3000, .shape = {1, 28, 28}});
    TrainerOptions options = small_run(1);
    options.batch = 3000;
    options.memory_limit = 3'000'000;
    const auto refusal = [&]() -> std::string {
      return test::message_of<ConfigError>([&] {
        Trainer(run.chain, *run.data, nullptr, options, run.stop).enter(comm, nullptr);
      });
    };
    const std::string message = refusal();
    std::smatch found;
    const std::regex form(
        "would fit: batch=(\\d+), or batch=(\\d+) with "
        "step.recompute=all; more slices or more ranks and shard=3 need less$");
    ASSERT_TRUE(std::regex_search(message, found, form)) << message;
    const int64_t plain = std::stoll(found[1]), recomputed = std::stoll(found[2]);
    EXPECT_GT(recomputed, plain);
    options.batch = plain;
    EXPECT_EQ(refusal(), "no error");
    options.batch = recomputed;
    EXPECT_THAT(refusal(), testing::HasSubstr(text("would fit: batch=", plain)));
    options.step.recompute = true;
    EXPECT_EQ(refusal(), "no error");
    options.batch = 3000;
    EXPECT_THAT(refusal(), testing::HasSubstr(
                               text("would fit: batch=", recomputed, "; more slices")));
    options.memory_limit = 1;
    EXPECT_THAT(refusal(), testing::HasSubstr("would fit: no batch with this layout"));
  });
}

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
