// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/batch_loader.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <mutex>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/train/compute_threads.h"

namespace cohort {
namespace {

using std::chrono::milliseconds;
using Made = std::vector<std::pair<int64_t, int>>;

// Remembers what was made, in order, and lets a test wait for it.
class LoadedSteps {
 public:
  Batch make(int64_t step, int slice) {
    const std::lock_guard lock(mutex_);
    made_.emplace_back(step, slice);
    changed_.notify_all();
    return {.count = 1, .ids = {100 * step + slice}};
  }
  BatchLoader::Make maker() {
    return [this](int64_t step, int slice) { return make(step, slice); };
  }
  // What was made when so many were, or nothing within a minute.
  Made after(size_t count) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::minutes(1),
                           [&] { return made_.size() >= count; }))
      return {};
    return made_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Made made_;
};

int64_t id_of(const Batch& batch) { return batch.ids.at(0); }

TEST(BatchLoader, MakesTheNextStepsBatchesWhileOneIsComputed) {
  LoadedSteps steps;
  BatchLoader loader(steps.maker(), {.first_slice = 4, .slices = 2, .end = 3});
  EXPECT_EQ(id_of(loader.take(0, 4)), 4);
  EXPECT_EQ(id_of(loader.take(0, 5)), 5);
  // Nobody has asked for step 1, and it is made; step 2 is not.
  EXPECT_EQ(steps.after(4), (Made{{0, 4}, {0, 5}, {1, 4}, {1, 5}}));
  EXPECT_EQ(id_of(loader.take(1, 4)), 104);
  EXPECT_EQ(id_of(loader.take(1, 5)), 105);
  EXPECT_EQ(id_of(loader.take(2, 4)), 204);
  EXPECT_EQ(id_of(loader.take(2, 5)), 205);
  EXPECT_EQ(steps.after(6).size(), 6u);  // the run ends with step 2
}

// The computation of step 0 ends only after step 1 is made: a loader that made it only
// when asked would never come to an end.
TEST(BatchLoader, ALoadAsLongAsAStepIsHiddenUnderIt) {
  std::latch made(2);  // steps 0 and 1
  BatchLoader loader(
      [&](int64_t step, int) {
        if (step < 2) made.count_down();
        return Batch{.count = 1, .ids = {step}};
      },
      {.end = 5});
  EXPECT_EQ(id_of(loader.take(0, 0)), 0);
  made.wait();
  EXPECT_EQ(id_of(loader.take(1, 0)), 1);
}

TEST(BatchLoader, GoesBackWhereTheRunDoes) {
  LoadedSteps steps;
  BatchLoader loader(steps.maker(), {.slices = 2, .end = 100});
  for (int64_t step = 0; step < 5; ++step)
    for (int slice = 0; slice < 2; ++slice)
      EXPECT_EQ(id_of(loader.take(step, slice)), 100 * step + slice);
  for (int64_t step = 2; step < 4; ++step)
    for (int slice = 0; slice < 2; ++slice)
      EXPECT_EQ(id_of(loader.take(step, slice)), 100 * step + slice);
}

TEST(BatchLoader, AnErrorIsThatOfWhoeverAsksForItsBatch) {
  BatchLoader loader(
      [](int64_t step, int) -> Batch {
        if (step == 1) throw DataError("a file ends early");
        return {.count = 1, .ids = {step}};
      },
      {.end = 5});
  EXPECT_EQ(id_of(loader.take(0, 0)), 0);
  EXPECT_EQ(test::message_of<DataError>([&] { (void)loader.take(1, 0); }),
            "a file ends early");
}

TEST(BatchLoader, NobodyWaitsForEver) {
  std::promise<void> goes_on;
  auto going = goes_on.get_future();
  BatchLoader loader(
      [&](int64_t, int) {
        going.wait();
        return Batch{};
      },
      {.slices = 3, .end = 5, .patience = milliseconds(20)});
  EXPECT_THAT(test::message_of<DataError>([&] { (void)loader.take(2, 1); }),
              testing::HasSubstr("step 3: the samples of slice 1"));
  goes_on.set_value();
}

TEST(BatchLoader, EndsWithBatchesThatNobodyTook) {
  std::atomic<int> calls{0};
  for (int i = 0; i < 50; ++i) {
    BatchLoader loader(
        [&](int64_t, int) {
          ++calls;
          return Batch{};
        },
        {.slices = 4, .end = 9});
    if (i % 2) (void)loader.take(0, 0);
  }
  EXPECT_GE(calls, 25);
}

// A second thread of computation would have a pool of its own, beside the first one's.
TEST(BatchLoader, ComputesWithOneThreadWhateverTheRankDoes) {
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  int inside = 0;
  {
    BatchLoader loader(
        [&](int64_t, int) {
          inside = at::get_num_threads();
          return Batch{};
        },
        {.end = 1});
    (void)loader.take(0, 0);
  }
  EXPECT_EQ(inside, 1);
  EXPECT_EQ(at::get_num_threads(), 3);
  at::set_num_threads(before);
}

}  // namespace
}  // namespace cohort
