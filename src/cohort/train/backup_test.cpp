// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/backup.h"

#include <gmock/gmock.h>

#include <condition_variable>
#include <thread>

#include "cohort/comm/local/local.h"
#include "cohort/train/testing_backup.h"

namespace cohort {

std::vector<std::string> test::in_world(
    int size, const std::function<void(Communicator& comm)>& body, int generation) {
  auto comms = make_local(size, std::chrono::seconds(60), generation);
  std::vector<std::string> errors(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(*comms[rank]);
      } catch (const std::exception& error) {
        errors[rank] = error.what();
        comms[rank]->abort(error.what());
      }
    });
  for (auto& thread : threads) thread.join();
  return errors;
}

namespace {

using test::expect_no_errors;
using test::in_world;
using test::SmallRank;
using test::SmallTask;
using testing::HasSubstr;

class BackupTest : public test::CheckpointFolder {
 protected:
  BackupOptions saving(int64_t every, bool async = false) const {
    return {.dir = root_, .every_steps = every, .async = async};
  }
  BackupOptions resuming() const { return {.dir = root_, .resume = true}; }

  // Trains to `until`, saving as asked; the hash of the last weights.
  uint64_t train(const SmallTask& task, const BackupOptions& options, int64_t until) {
    uint64_t hash = 0;
    expect_no_errors(in_world(task.layout.dp, [&](Communicator& comm) {
      Backup backup(options, nullptr);
      SmallRank rank(task, comm, backup, &heard_);
      went_on_from_ = rank.restore();
      rank.train(until);
      const uint64_t mine = rank.hash();
      if (options.every_steps > 0) rank.finish();
      if (comm.rank() == 0) hash = mine;
    }));
    return hash;
  }
  // What each rank throws when it goes on.
  std::vector<std::string> errors_of(const SmallTask& task,
                                     const BackupOptions& options) {
    return in_world(task.layout.dp, [&](Communicator& comm) {
      Backup backup(options, nullptr);
      SmallRank(task, comm, backup, &heard_).restore();
    });
  }

  test::Recorder heard_;
  std::atomic<int64_t> went_on_from_{-1};
};

const Layout kLayouts[] = {
    {.dp = 1}, {.dp = 3}, {.dp = 2, .shard = 1}, {.dp = 4, .shard = 2, .replicate = 2}};

TEST_F(BackupTest, GoesOnInAnyLayoutToTheSameWeights) {
  for (const bool async : {false, true})
    for (const auto* optimizer : {"sgd", "adamw"})
      for (const auto dtype : {at::kFloat, at::kBFloat16}) {
        std::filesystem::remove_all(root_);
        SmallTask task{
            .layout = {.dp = 4, .shard = 3}, .optimizer = optimizer, .dtype = dtype};
        train(task, saving(3, async), 3);
        const uint64_t wanted = train(task, resuming(), 6);
        EXPECT_EQ(went_on_from_, 3);
        std::filesystem::rename(root_, root_ + "x");
        EXPECT_EQ(train(task, {}, 6), wanted) << "undisturbed";
        std::filesystem::rename(root_ + "x", root_);
        for (const auto& layout : kLayouts) {
          task.layout = layout;
          task.weights = 77;
          EXPECT_EQ(train(task, resuming(), 6), wanted) << layout.text();
        }
      }
}

TEST_F(BackupTest, SaysWhereTheRunGoesOnFrom) {
  train({}, resuming(), 1);
  EXPECT_THAT(heard_.notes, HasSubstr("nothing is saved in " + root_));
  train({}, saving(2), 5);
  ASSERT_EQ(heard_.saved.size(), 3u);  // steps 2, 4, and the last
  EXPECT_EQ(heard_.saved[1].step, 4);
  EXPECT_EQ(heard_.saved[1].path, root_ + "/step-00000004");
  train({}, resuming(), 6);
  EXPECT_THAT(heard_.notes, HasSubstr("goes on from " + root_ + "/step-00000005"));
}

TEST_F(BackupTest, KeepsTheRunsPlaceAndSettings) {
  train({.layout = {.dp = 2, .shard = 2}}, saving(5), 5);
  const RunState run = Checkpoint(root_ + "/step-00000005").manifest().run;
  EXPECT_EQ(run.epoch, 1);    // 4 batches per epoch
  EXPECT_EQ(run.sample, 12);  // one batch into it
  EXPECT_EQ(run.seed, 3u);
  EXPECT_EQ(run.world, 2);
  EXPECT_EQ(run.metrics.count("loss"), 1u);
  EXPECT_EQ(saved_slices(root_), 4);
  EXPECT_EQ(saved_slices(dir_ + "/nowhere"), 0);
}

TEST_F(BackupTest, AnotherSeedBatchOrDataIsRefusedOnEveryRank) {
  train({}, saving(2), 2);
  SmallTask seed{.layout = {.dp = 2}}, batch = seed, data = seed;
  seed.samples.seed = 4;
  batch.samples.batch = 16;
  data.samples.size = 50;
  for (const auto& error : errors_of(seed, resuming()))
    EXPECT_THAT(error, HasSubstr("was saved with seed=3, asked for is seed=4"));
  for (const auto& error : errors_of(batch, resuming()))
    EXPECT_THAT(error, HasSubstr("was saved with batch=12, asked for is batch=16"));
  for (const auto& error : errors_of(data, resuming()))
    EXPECT_THAT(error, HasSubstr("was saved with samples of data=44"));
}

TEST_F(BackupTest, AFolderInUseIsRefusedWithoutResume) {
  train({}, saving(2), 2);
  for (const auto& error : errors_of({.layout = {.dp = 2}}, saving(2)))
    EXPECT_THAT(error, HasSubstr("has checkpoints up to step 2; go on from them with"));
}

TEST_F(BackupTest, ADamagedOneIsNamedAndPassedOver) {
  train({}, saving(2), 4);
  const std::string shard = root_ + "/step-00000004/model-00001-of-00001.safetensors";
  {
    std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-9, std::ios::end);
    file.put('\x55');
  }
  train({.layout = {.dp = 2}}, resuming(), 5);
  EXPECT_EQ(went_on_from_, 2);
  EXPECT_THAT(heard_.notes, HasSubstr("passed over: "));
  EXPECT_THAT(heard_.notes, HasSubstr(shard));
  std::filesystem::resize_file(shard, 100);
  train({.layout = {.dp = 2}}, resuming(), 5);
  EXPECT_EQ(went_on_from_, 2);
}

TEST_F(BackupTest, NothingButDamageIsAnErrorAndNoFreshStart) {
  train({}, saving(2), 2);
  std::filesystem::resize_file(root_ + "/step-00000002/manifest.json", 100);
  for (const auto& error : errors_of({.layout = {.dp = 2}}, resuming()))
    EXPECT_THAT(error, HasSubstr("manifest.json"));
}

TEST_F(BackupTest, AStepThatIsThereIsNotWrittenAgain) {
  for (const bool async : {false, true}) {
    std::filesystem::remove_all(root_);
    heard_.saved.clear();
    train({.layout = {.dp = 2}}, saving(2, async), 4);
    EXPECT_EQ(heard_.saved.back().step, 4);
    EXPECT_LE(heard_.saved.size(), 2u);  // 2 may have been too slow for 4
  }
}

TEST_F(BackupTest, OldOnesGoAsTheRulesSay) {
  BackupOptions options = saving(1);
  options.retention = {.last = 2, .every_steps = 3};
  train({}, options, 7);
  std::vector<int64_t> steps;
  for (const auto& info : list_checkpoints(root_)) steps.push_back(info.step);
  EXPECT_THAT(steps, testing::ElementsAre(3, 6, 7));
}

TEST_F(BackupTest, AFullDiskIsReportedAndTheRunGoesOn) {
  for (const bool async : {false, true}) {
    std::filesystem::remove_all(root_);
    heard_.failed.clear();
    expect_no_errors(in_world(2, [&](Communicator& comm) {
      auto disk = std::make_unique<test::FailingDisk>(test::kForever);
      auto& space = disk->free;
      Backup backup(saving(2, async), nullptr, nullptr, std::move(disk));
      SmallRank rank({.layout = {.dp = 2}}, comm, backup, &heard_);
      rank.train(2);
      EXPECT_TRUE(rank.finish());
      space = 10;
      rank.train(4);
      EXPECT_FALSE(rank.finish());
      EXPECT_EQ(rank.state().step, 4);
    }));
    ASSERT_GE(heard_.failed.size(), 1u);
    EXPECT_EQ(heard_.failed[0].step, 4);
    EXPECT_THAT(heard_.failed[0].cause, HasSubstr("the disk is full"));
    EXPECT_EQ(list_checkpoints(root_).size(), 1u);
  }
}

// Opened by the test; a deadline keeps a broken one from hanging.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(120), [&] { return open_; }));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

// Writes nothing before the gate is open.
class SlowDisk final : public test::FailingDisk {
 public:
  explicit SlowDisk(Gate& gate) : FailingDisk(test::kForever), gate_(gate) {}
  std::unique_ptr<File> create(const Path& path) override {
    gate_.pass();
    return FailingDisk::create(path);
  }

 private:
  Gate& gate_;
};

TEST_F(BackupTest, TheStepDoesNotWaitForASlowDisk) {
  Gate gate;
  expect_no_errors(in_world(3, [&](Communicator& comm) {
    Backup backup(saving(2, true), nullptr, nullptr, std::make_unique<SlowDisk>(gate));
    SmallRank rank({.layout = {.dp = 3, .shard = 2}}, comm, backup, &heard_);
    rank.train(7);  // 4 and 6 are due meanwhile
    EXPECT_TRUE(list_checkpoints(root_).empty());
    comm.barrier().wait();
    gate.open();
    EXPECT_TRUE(rank.finish());
  }));
  std::vector<int64_t> steps;
  for (const auto& info : list_checkpoints(root_)) steps.push_back(info.step);
  EXPECT_THAT(steps, testing::ElementsAre(2, 7));
  const auto first = heard_.notes.find("step 4 is not saved: the checkpoint before it");
  EXPECT_NE(first, std::string::npos);
  EXPECT_EQ(heard_.notes.find("is not saved", first + 20), std::string::npos);
}

TEST_F(BackupTest, AWriteCutOffByALostWorldIsNoFailureAndTheNextOneWorks) {
  Gate gate;
  std::vector<std::unique_ptr<Backup>> backups;
  for (int r = 0; r < 2; ++r)
    backups.push_back(std::make_unique<Backup>(saving(2, true), nullptr, nullptr,
                                               std::make_unique<SlowDisk>(gate)));
  expect_no_errors(in_world(2, [&](Communicator& comm) {
    SmallRank rank({.layout = {.dp = 2}}, comm, *backups[comm.rank()], &heard_);
    rank.train(3);
    backups[comm.rank()]->end();
  }));
  gate.open();
  expect_no_errors(in_world(
      2,
      [&](Communicator& comm) {
        SmallRank rank({.layout = {.dp = 2}}, comm, *backups[comm.rank()], &heard_);
        rank.train(3);
        EXPECT_TRUE(rank.finish());
      },
      1));
  EXPECT_TRUE(heard_.failed.empty());
  EXPECT_EQ(list_checkpoints(root_).back().step, 3);
  EXPECT_EQ(test::hidden_entries(root_), 0);
}

}  // namespace
}  // namespace cohort
