// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <thread>

#include "cohort/data/synthetic.h"
#include "cohort/engine/action_watch.h"
#include "cohort/nn/models.h"
#include "cohort/train/step_plan.h"
#include "cohort/train/testing_reporter.h"
#include "cohort/train/trainer.h"
#include "support/ranks.h"

namespace cohort {
namespace {

// Takes so long for each slice.
class SlowForward final : public ActionWatch {
 public:
  explicit SlowForward(std::chrono::milliseconds delay) : delay_(delay) {}
  void begin(const Action& action) override {
    if (action.kind != ActionKind::kForward) return;
    if (block_ == kNone) block_ = action.block;  // the first one of the stage
    if (action.block == block_) std::this_thread::sleep_for(delay_);
  }
  void end(const Action&) override {}

 private:
  std::chrono::milliseconds delay_;
  int block_ = kNone;
};

// Four steps per epoch, of six slices, over stages that compute next to nothing.
// Returns what was noted, on rank 0.
std::string notes_of_pipeline(Communicator& comm, int stages, int epochs,
                              const Augment& augment, ActionWatch* watch = nullptr) {
  const auto data = make_synthetic({.size = 96, .shape = {16}});
  Chain chain = make_mlp({.inputs = 16, .width = 16, .depth = 3}, {.seed = 2});
  TrainerOptions options;
  options.epochs = epochs;
  options.batch = 24;
  options.slices = 6;
  options.layout = {.dp = comm.size() / stages, .pp = stages};
  options.rate.base = 0.02;
  options.started = std::chrono::system_clock::now();
  test::Recorder recorder;
  std::atomic<int> stop{0};
  Trainer trainer(chain, *data, nullptr, options, stop,
                  TrainerServices{.watch = watch, .augment = augment});
  trainer.enter(comm, comm.rank() == 0 ? &recorder : nullptr);
  trainer.fit();
  return recorder.notes;
}

TEST(Slices, AreEquallyManyForRanksThatCallOneAnother) {
  const Chain chain = make_resnet({.depths = {1}, .width = 4, .classes = 10},
                                  {.seed = 1, .sync_batch_norm = true});
  EXPECT_TRUE(calls_all_data_ranks(chain));
  for (const auto& [ranks, wanted] : std::map<int, int>{{8, 8}, {7, 7}, {3, 6}, {1, 8}})
    EXPECT_EQ(even_slices(8, {.dp = ranks}, 8), wanted) << ranks;
}

TEST(Pipeline, EachStageLoadsASampleOnceAnEpoch) {
  test::run_ranks({.backend = "local", .size = 3}, [](Communicator& comm) {
    int64_t samples = 0;
    notes_of_pipeline(comm, 3, 2, [&](Batch& batch, int64_t) {
      samples += static_cast<int64_t>(batch.ids.size());
    });
    EXPECT_EQ(samples, 2 * 96);
  });
}

// A hundred steps of ranks that take so long for each slice.
std::string notes_of_ranks(const std::vector<int>& milliseconds, int stages) {
  std::string notes;
  test::run_local_ranks(
      static_cast<int>(milliseconds.size()), /*generation=*/0, [&](Communicator& comm) {
        SlowForward slow{std::chrono::milliseconds(milliseconds[comm.rank()])};
        const std::string said = notes_of_pipeline(comm, stages, 25, nullptr, &slow);
        if (comm.rank() == 0) notes = said;
      });
  return notes;
}

// All others wait for it: before it and behind it along the pipeline, and those that
// compute the same stage.
TEST(SlowStage, IsNamedWhereverItIs) {
  test::run_in_child([] {
    EXPECT_THAT(notes_of_ranks({0, 2}, 2), testing::HasSubstr("rank 1 is slow"));
    EXPECT_THAT(notes_of_ranks({2, 0, 0}, 3), testing::HasSubstr("rank 0 is slow"));
    EXPECT_THAT(notes_of_ranks({0, 2, 0}, 3), testing::HasSubstr("rank 1 is slow"));
    EXPECT_THAT(notes_of_ranks({0, 0, 3, 0}, 2), testing::HasSubstr("rank 2 is slow"));
  });
}

// They wait for one another all the same, when a step begins and when it ends.
TEST(SlowStage, IsNoneWhereAllTakeEquallyLong) {
  test::run_in_child([] {
    EXPECT_EQ(notes_of_ranks({3, 3}, 2), "");
    EXPECT_EQ(notes_of_ranks({3, 3, 3}, 3), "");
  });
}

}  // namespace
}  // namespace cohort
