// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/data/synthetic.h"
#include "cohort/engine/action_watch.h"
#include "cohort/nn/models.h"
#include "cohort/train/testing_reporter.h"
#include "cohort/train/trainer.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using Names = std::set<std::string>;

// Remembers which fields it was asked for, and how many samples there were.
class AskedDataset final : public Dataset {
 public:
  explicit AskedDataset(int64_t size)
      : data_(make_synthetic({.size = size, .shape = {12}})) {}
  int64_t size() const override { return data_->size(); }
  std::span<const std::string> fields() const override { return data_->fields(); }
  Batch gather(std::span<const int64_t> ids,
               std::span<const std::string> fields) const override {
    const std::lock_guard lock(mutex_);
    asked_.emplace(fields.begin(), fields.end());
    samples_ += static_cast<int64_t>(ids.size());
    largest_ = std::max(largest_, static_cast<int64_t>(ids.size()));
    return data_->gather(ids, fields);
  }
  std::string describe() const override { return data_->describe(); }

  void forget() {
    asked_.clear();
    samples_ = 0;
  }
  // What was asked for since, each time.
  std::set<Names> asked() const { return asked_; }
  int64_t samples() const { return samples_; }
  int64_t largest() const { return largest_; }  // number of them at once

 private:
  std::unique_ptr<Dataset> data_;
  mutable std::mutex mutex_;
  mutable std::set<Names> asked_;
  mutable int64_t samples_ = 0, largest_ = 0;
};

Chain some_layers() {
  return make_mlp({.inputs = 12, .width = 12, .depth = 3, .dropout = 0}, {.seed = 4});
}

struct Asked {
  std::string weights_hash;
  std::set<Names> train, valid;
  int64_t samples = 0;
};

Asked asked_by(Communicator& comm, const Layout& layout) {
  Chain chain = some_layers();
  AskedDataset train(24), valid(10);
  TrainerOptions options;
  options.batch = 8;
  options.slices = 4;
  options.layout = layout;
  options.rate.base = 0.1;
  options.step.exact = true;
  const std::atomic<int> stop{0};
  Trainer trainer(chain, train, &valid, options, stop);
  train.forget();  // what the measuring of blocks took
  trainer.enter(comm, nullptr);
  const DoneEvent done = trainer.fit();
  return {done.weights_hash, train.asked(), valid.asked(), train.samples()};
}

TEST(TrainerFields, AStageOfAPipelineLoadsWhatItsBlocksTake) {
  test::run_ranks({.backend = "local", .size = 3}, [](Communicator& comm) {
    const Asked asked = asked_by(comm, {.pp = 3});
    const std::vector<Names> by_stage = {{"input"}, {}, {"target"}};
    EXPECT_THAT(asked.train, testing::ElementsAre(by_stage[comm.rank()]));
    EXPECT_THAT(asked.valid, testing::ElementsAre(by_stage[comm.rank()]));
    EXPECT_EQ(asked.samples, 24);  // every stage knows the ids of all samples
    auto solo = comm.split(comm.rank());
    const Asked alone = asked_by(*solo, {});
    EXPECT_THAT(alone.train, testing::ElementsAre(Names{"input", "target"}));
    EXPECT_EQ(asked.weights_hash, alone.weights_hash);
  });
}

// By parameters a chain of equal layers is cut in the middle, by these costs behind the
// third of four.
TEST(TrainerFields, AValidationHasTheStagesOfTheStep) {
  test::run_ranks({.backend = "local", .size = 2}, [](Communicator& comm) {
    const auto valid_loss = [](Communicator& ranks, const Layout& layout) {
      Chain chain = some_layers();
      AskedDataset train(24), valid(10);
      TrainerOptions options{.batch = 8, .slices = 4, .layout = layout};
      options.rate.base = 0.1;
      options.step.exact = true;
      options.counted = measure_blocks(chain, train);
      options.counted.back().flops = {.fixed = 0, .per_sample = 1000};
      for (size_t b = 0; b < 3; ++b) options.counted[b].flops.per_sample = 10;
      test::Recorder recorder;
      const std::atomic<int> stop{0};
      Trainer trainer(chain, train, &valid, options, stop);
      trainer.enter(ranks, &recorder);
      trainer.fit();
      return recorder.valids.at(0).loss;
    };
    auto solo = comm.split(comm.rank());
    EXPECT_NEAR(valid_loss(comm, {.pp = 2}), valid_loss(*solo, {}), 1e-6);
  });
}

TEST(TrainerFields, AValidationIsMadeInPiecesThatFit) {
  test::run_ranks({.backend = "local", .size = 2}, [](Communicator& comm) {
    const auto largest = [&](int64_t limit) {
      Chain chain = make_mlp({.inputs = 12, .width = 256, .depth = 3}, {.seed = 4});
      AskedDataset train(24), valid(1500);
      TrainerOptions options{.batch = 8, .slices = 4, .layout = {.dp = 2}};
      options.memory_limit = limit;
      const std::atomic<int> stop{0};
      Trainer trainer(chain, train, &valid, options, stop);
      trainer.enter(comm, nullptr);
      trainer.fit();
      EXPECT_EQ(valid.samples(), 750);  // its half, each sample once
      return valid.largest();
    };
    EXPECT_EQ(largest(1'000'000'000), 500);
    const int64_t piece = largest(2'500'000);
    EXPECT_GT(piece, 4);  // a forward needs less than a step of a slice
    EXPECT_LT(piece, 500);
    Tensor all = at::full({1}, piece, at::kLong);
    comm.all_reduce(all, ReduceOp::kSum).wait();
    EXPECT_EQ(all.item<int64_t>(), 2 * piece);
  });
}

// Counts what was loaded, and lets somebody else wait for it.
class LoadedDataset final : public Dataset {
 public:
  int64_t size() const override { return data_->size(); }
  std::span<const std::string> fields() const override { return data_->fields(); }
  Batch gather(std::span<const int64_t> ids,
               std::span<const std::string> fields) const override {
    Batch batch = data_->gather(ids, fields);
    const std::lock_guard lock(mutex_);
    samples_ += batch.count;
    changed_.notify_all();
    return batch;
  }
  std::string describe() const override { return data_->describe(); }

  // False if there are fewer after a minute.
  bool has_loaded(int64_t samples) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1),
                             [&] { return samples_ >= samples; });
  }
  void forget() { samples_ = 0; }

 private:
  std::unique_ptr<Dataset> data_ = make_synthetic({.size = 24, .shape = {12}});
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int64_t samples_ = 0;
};

// Ends no step before the next one's samples are loaded, as if loading took as long.
class EndsAfterLoading final : public ActionWatch {
 public:
  EndsAfterLoading(const LoadedDataset& data, int64_t step_samples, int64_t steps)
      : data_(data), step_samples_(step_samples), steps_(steps) {}
  void begin(const Action& action) override {
    if (action.kind != ActionKind::kCommit) return;
    ++done_;
    hidden_ &= data_.has_loaded(step_samples_ * std::min(done_ + 1, steps_));
  }
  void end(const Action&) override {}
  bool hidden() const { return hidden_ && done_ == steps_; }

 private:
  const LoadedDataset& data_;
  int64_t step_samples_, steps_, done_ = 0;
  bool hidden_ = true;
};

TEST(TrainerFields, TheNextBatchIsLoadedWhileAStepRuns) {
  test::run_ranks({.backend = "local", .size = 3}, [](Communicator& comm) {
    for (const Layout& layout : {Layout{.dp = 3}, Layout{.pp = 3}}) {
      Chain chain = some_layers();
      LoadedDataset data;
      // 6 of 24 samples per step, those of a third of the slices or of all.
      EndsAfterLoading watch(data, layout.dp == 3 ? 2 : 6, 4);
      TrainerOptions options{.batch = 6, .slices = 3, .layout = layout};
      const std::atomic<int> stop{0};
      Trainer trainer(chain, data, nullptr, options, stop,
                      TrainerServices{.watch = &watch});
      data.forget();
      trainer.enter(comm, nullptr);
      trainer.fit();
      EXPECT_TRUE(watch.hidden()) << layout.text();
    }
  });
}

TEST(TrainerFields, AModelThatTakesWhatNobodyHasIsRefusedBeforeAStep) {
  Chain chain = some_layers();
  chain.loss.fields = {"target", "mask"};
  AskedDataset data(24);
  const std::atomic<int> stop{0};
  const std::string said = test::message_of<ConfigError>(
      [&] { Trainer(chain, data, nullptr, {.batch = 8}, stop); });
  EXPECT_THAT(said, testing::HasSubstr("the field 'mask' of a batch"));
  EXPECT_THAT(said, testing::HasSubstr("has: input, target"));
  EXPECT_EQ(data.samples(), 0);
}

}  // namespace
}  // namespace cohort
