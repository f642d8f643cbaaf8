// SPDX-License-Identifier: Apache-2.0
// A run whose ranks are all gone goes on from memory.
#include <gmock/gmock.h>

#include "cohort/train/testing_backup.h"

namespace cohort {
namespace {

using test::expect_no_errors;
using test::in_world;
using test::SmallRank;
using test::SmallTask;
using testing::HasSubstr;

class BackupSnapshotTest : public test::CheckpointFolder {
 protected:
  BackupOptions taking(int64_t every) const { return {.snapshot_every = every}; }

  // A world of new processes: trains to `until` and is gone.
  uint64_t live(const SmallTask& task, const BackupOptions& options, int64_t until,
                int generation, FaultPlan* faults = nullptr) {
    uint64_t hash = 0;
    expect_no_errors(in_world(
        task.layout.dp,
        [&](Communicator& comm) {
          Backup backup(options, &agent_, faults);
          SmallRank rank(task, comm, backup, &heard_);
          const int64_t from = rank.restore();
          rank.train(until);
          const uint64_t mine = rank.hash();
          if (comm.rank() != 0) return;
          hash = mine;
          went_on_from_ = from;
        },
        generation));
    return hash;
  }

  // A bit of one rank's part of the newest snapshot flips. (The last of three ranks has
  // no share of so small a model.)
  void pass_over(int ranks) {
    const SmallTask task{.layout = {.dp = ranks, .shard = ranks > 1 ? 1 : 0}};
    const uint64_t wanted = live(task, {}, 9, 0);
    FaultPlan faults(text("backup.snapshot_data@", ranks / 2, ":3=flip"));
    live(task, taking(2), 7, 0, &faults);  // snapshots of 2, 4 and 6
    EXPECT_EQ(faults.pending(), 0);
    EXPECT_EQ(live(task, taking(2), 9, 1), wanted);
    EXPECT_EQ(went_on_from_, 4);
    EXPECT_THAT(heard_.notes, HasSubstr(text("passed over: [train.snapshot] rank ",
                                             ranks / 2, "'s part of step 6 has")));
  }

  test::FakeAgent agent_;
  test::Recorder heard_;
  int64_t went_on_from_ = -1;
};

TEST_F(BackupSnapshotTest, AllRanksGoneGoOnFromMemoryInAnyLayout) {
  const SmallTask task{.layout = {.dp = 4, .shard = 3}, .optimizer = "adamw"};
  const uint64_t early = live(task, {}, 7, 0), wanted = live(task, {}, 12, 0);
  live(task, taking(2), 5, 0);
  EXPECT_EQ(live(task, taking(2), 7, 1), early);
  int generation = 2;
  for (const Layout& layout :
       {Layout{.dp = 3, .shard = 1}, Layout{.dp = 1},
        Layout{.dp = 4, .shard = 2, .replicate = 2}, Layout{.dp = 2}}) {
    SmallTask other = task;
    other.layout = layout;
    other.weights = 99;
    live(other, taking(2), generation + 6, generation);
    EXPECT_EQ(went_on_from_, (generation + 5) / 2 * 2) << layout.text();
    ++generation;
  }
  EXPECT_EQ(live(task, taking(2), 12, generation), wanted);
  EXPECT_THAT(heard_.notes,
              HasSubstr("goes on from the snapshot of step 10 in memory"));
}

TEST_F(BackupSnapshotTest, TheFurtherOfSnapshotAndCheckpointIsTaken) {
  BackupOptions options{.dir = root_, .every_steps = 3, .snapshot_every = 2};
  const SmallTask task{.layout = {.dp = 2, .shard = 2}};
  const uint64_t wanted = live(task, {}, 9, 0);
  live(task, options, 4, 0);  // snapshots of 2, 4; and 3, for the disk
  live(task, options, 5, 1);
  EXPECT_EQ(went_on_from_, 4);
  options.snapshot_every = 0;
  EXPECT_EQ(live(task, options, 9, 2), wanted);
  EXPECT_EQ(went_on_from_, 4);
}

TEST_F(BackupSnapshotTest, OneWhoseDataChangedByItselfIsPassedOverAtOneRank) {
  pass_over(1);
}

TEST_F(BackupSnapshotTest, OneWhoseDataChangedByItselfIsPassedOverAtThreeRanks) {
  pass_over(3);
}

// What is written behind is read from a snapshot. At the end the state itself is saved.
TEST_F(BackupSnapshotTest, OneWhoseDataChangedByItselfIsNotSaved) {
  const SmallTask task{.layout = {.dp = 3, .shard = 1}};
  const uint64_t wanted = live(task, {}, 3, 0);
  FaultPlan faults("backup.snapshot_data@1:1=flip");
  expect_no_errors(in_world(3, [&](Communicator& comm) {
    Backup backup({.dir = root_, .every_steps = 2}, &agent_, &faults);
    SmallRank rank(task, comm, backup, &heard_);
    rank.train(2);
    EXPECT_TRUE(rank.finish());
  }));
  EXPECT_EQ(faults.pending(), 0);
  ASSERT_EQ(heard_.failed.size(), 1u);
  EXPECT_EQ(heard_.failed[0].step, 2);
  EXPECT_THAT(heard_.failed[0].cause, HasSubstr("rank 1's part of step 2 has changed"));
  EXPECT_EQ(live(task, {.dir = root_, .resume = true}, 3, 0), wanted);
  EXPECT_EQ(went_on_from_, 2);
}

TEST_F(BackupSnapshotTest, WithoutMemoryTheDiskHelps) {
  const BackupOptions options{
      .dir = root_, .every_steps = 3, .async = false, .snapshot_every = 0};
  const SmallTask task{.layout = {.dp = 2, .shard = 2}};
  const uint64_t wanted = live(task, {}, 7, 0);
  live(task, options, 4, 0);
  EXPECT_EQ(live(task, options, 7, 1), wanted);
  EXPECT_EQ(went_on_from_, 3);
}

TEST_F(BackupSnapshotTest, TooLittleMemoryIsRefusedAtTheStart) {
  BackupOptions options = taking(2);
  options.memory = 1000;
  const auto errors = in_world(2, [&](Communicator& comm) {
    Backup backup(options, &agent_);
    SmallRank rank({.layout = {.dp = 2}}, comm, backup);
  });
  for (const auto& error : errors) {
    EXPECT_THAT(error, HasSubstr("snapshots of all ranks need"));
    EXPECT_THAT(error, HasSubstr("checkpoint.memory"));
  }
}

TEST_F(BackupSnapshotTest, SnapshotsGoOnWhileACheckpointIsWritten) {
  const BackupOptions options{.dir = root_, .every_steps = 4, .snapshot_every = 1};
  const SmallTask task{.layout = {.dp = 2, .shard = 1}};
  const uint64_t wanted = live(task, {}, 15, 0);
  live(task, options, 14, 0);
  EXPECT_EQ(live(task, options, 15, 1), wanted);
  EXPECT_EQ(went_on_from_, 14);
}

}  // namespace
}  // namespace cohort
