// SPDX-License-Identifier: Apache-2.0
#include "cohort/elastic/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>

#include "cohort/core/error.h"
#include "cohort/core/hash.h"
#include "cohort/core/testing_error.h"
#include "cohort/elastic/history_check.h"
#include "cohort/elastic/testing_history.h"

namespace {

int num_data_syncs = 0;

}  // namespace

// Takes the place of the system's in this program: that a file is on disk shows in
// nothing else.
extern "C" int fdatasync(int fd) {
  ++num_data_syncs;
  return static_cast<int>(::syscall(SYS_fdatasync, fd));
}

namespace cohort {
namespace {

using testing::HasSubstr;
using namespace cohort::test;  // NOLINT: a test

class HistoryLog : public HistoryFolder {
 protected:
  // Notes steps after the file's last one, up to `last`, as small_step() has them.
  static void note(History& history, int64_t last) {
    for (int64_t step = history.committed() + 1; step <= last; ++step)
      history.step({.step = step,
                    .loss = small_step(step).loss,
                    .drawn = {},
                    .hash = small_step(step).hash});
  }
  // The file of a run that was lost behind its step `last`.
  void write_lost_run(int64_t last) const {
    History history(path_, small_run());
    history.begin(small_world(), "");
    note(history, last);
  }
};

TEST_F(HistoryLog, RecordsComeBackAsTheyWereWritten) {
  const std::vector<HistoryRecord> records = {
      small_run(),
      small_world(),
      small_step(1),
      HistoryStep{.step = 2,
                  .generation = 3,
                  .epoch = 1,
                  .first = 5,
                  .count = 6,
                  .afterwards = true,
                  .loss = {},
                  .hash = {}},
      drawn_step(3),
      HistoryRollback{2, 1, "both copies of a shard are lost"},
      HistoryEnd{1, 15, RecordedHash{0xfeedfacecafebeefu}},
      stream_step(4),
      HistoryEnd{1, 0, RecordedHash{5, HashKind::kStream}},
      HistoryEnd{1, 0, {}}};
  write_history(path_, records);
  EXPECT_EQ(read_history(path_), records);
}

TEST_F(HistoryLog, AStepTakes80BytesAndThoseOfOlderPrograms64) {
  EXPECT_EQ(history_bytes(drawn_step(1), 0).size(), 80u);
  EXPECT_EQ(history_bytes(small_step(1), 0).size(), 64u);
}

TEST_F(HistoryLog, TheBytesDoNotChange) {
  const auto hash = [](const HistoryStep& one, const HistoryStep& two) {
    return hex16(hash64(bytes_of({small_run(), small_world(), one, two})));
  };
  EXPECT_EQ(hash(stream_step(1), stream_step(2)), "27aa3a98bff254a9");
  HistoryStep drawn = drawn_step(1);
  drawn.hash->kind = HashKind::kStream;
  EXPECT_EQ(hex16(hash64(bytes_of({small_run(), small_world(), drawn}))),
            "1c2be0471919660f");
  EXPECT_EQ(hash(small_step(1), drawn_step(2)), "12af3168b3b464bc");
}

TEST_F(HistoryLog, AnUndisturbedRunIsNotedStepByStep) {
  {
    History history(path_, small_run());
    history.begin(small_world(), "");
    note(history, 4);
    history.end(0, RecordedHash{104});
  }
  auto expected = small_history(4);
  expected.push_back(HistoryEnd{4, 0, RecordedHash{104}});
  EXPECT_EQ(read_history(path_), expected);
}

TEST_F(HistoryLog, IsSyncedOnceAtItsEnd) {
  History history(path_, small_run());
  history.begin(small_world(), "");
  note(history, 4);
  const int before = num_data_syncs;
  history.end(0, RecordedHash{104});
  EXPECT_EQ(num_data_syncs, before + 1);
}

TEST_F(HistoryLog, ALaterCommandGoesOnInTheSameFile) {
  {
    History history(path_, small_run());
    history.begin(small_world(), "");
    note(history, 2);
    history.end(15, {});
  }
  {
    History history(path_, small_run());
    EXPECT_EQ(history.committed(), 2);
    history.begin(small_world(0, 2, 2000), "");
    note(history, 4);
  }
  const auto report = verify_history(path_);
  EXPECT_TRUE(report.holds()) << report.breaches[0];
  EXPECT_EQ(report.commands, 2);
  EXPECT_EQ(report.steps, 4);
}

TEST_F(HistoryLog, StepsThatALostWriterCommittedAreFilledUp) {
  write_lost_run(2);
  History history(path_, small_run());
  history.begin(small_world(1, 4), "");
  note(history, 5);

  const auto records = read_history(path_);
  ASSERT_EQ(records.size(), 8u);
  auto third = small_step(3);
  third.loss = {};
  third.hash = {};
  third.afterwards = true;
  EXPECT_EQ(records[4], HistoryRecord(third));
  EXPECT_EQ(records[6], HistoryRecord(small_world(1, 4)));
  EXPECT_TRUE(verify_history(path_).holds());
}

TEST_F(HistoryLog, WhatASurvivorKnowsOfTheLastStepIsFilledUpWithIt) {
  write_lost_run(1);
  History history(path_, small_run());
  history.begin(small_world(1, 3), "",
                {.step = 3, .loss = 0.5, .drawn = drawn_step(3).drawn});
  const auto records = read_history(path_);
  ASSERT_EQ(records.size(), 6u);
  EXPECT_EQ(std::get<HistoryStep>(records[3]).drawn, std::nullopt);
  auto last = drawn_step(3);
  last.loss = 0.5;
  last.hash = {};
  last.afterwards = true;
  EXPECT_EQ(records[4], HistoryRecord(last));
  const auto report = verify_history(path_);
  EXPECT_TRUE(report.holds());
  EXPECT_EQ(report.steps_drawn, 1);
  EXPECT_EQ(report.steps_not_drawn, 2);
}

TEST_F(HistoryLog, AWorldThatBeginsEarlierIsARollback) {
  write_lost_run(4);
  History history(path_, small_run());
  history.begin(small_world(1, 2), "both copies are lost");
  EXPECT_EQ(history.committed(), 2);
  EXPECT_EQ(read_history(path_)[6],
            HistoryRecord(HistoryRollback{4, 2, "both copies are lost"}));
  EXPECT_TRUE(verify_history(path_).holds());
}

TEST_F(HistoryLog, AHistoryMayBeginInTheMiddleOfARun) {
  History history(path_, small_run());
  history.begin(small_world(0, 4), "");
  note(history, 9);
  const auto report = verify_history(path_);
  EXPECT_TRUE(report.holds()) << report.breaches[0];
  EXPECT_EQ(report.run.base, 4);
  EXPECT_EQ(report.epochs, 1);  // the third alone is in the file from its beginning
}

TEST_F(HistoryLog, EveryTornTailIsCutOffAndTheRunGoesOn) {
  const std::string whole = bytes_of(small_history(2));
  for (size_t length = 0; length < whole.size(); ++length) {
    put_file(path_, whole.substr(0, length));
    {
      History history(path_, small_run());
      history.begin(small_world(1, std::max<int64_t>(history.committed(), 1)), "");
      note(history, 4);
    }
    const auto report = verify_history(path_);
    EXPECT_TRUE(report.holds()) << length << ": " << report.breaches[0];
    EXPECT_EQ(report.torn_bytes, 0) << length;
    EXPECT_EQ(report.steps, 4) << length;
  }
}

TEST_F(HistoryLog, ATailOfZerosIsCutOff) {
  put_file(path_, bytes_of(small_history(2)) + std::string(100, '\0'));
  EXPECT_EQ(verify_history(path_).torn_bytes, 100);
  History history(path_, small_run());
  history.begin(small_world(1, 2), "");
  EXPECT_EQ(verify_history(path_).torn_bytes, 0);
}

TEST_F(HistoryLog, ADamagedFileIsNamedAndNotWrittenTo) {
  std::string bytes = bytes_of(small_history(3));
  bytes[bytes.size() - 100] ^= 1;
  put_file(path_, bytes);
  EXPECT_THAT(test::message_of<DataError>([&] { History history(path_, small_run()); }),
              HasSubstr("record 3 at byte"));
  EXPECT_EQ(read_file(path_), bytes);
}

TEST_F(HistoryLog, TheHistoryOfAnotherRunIsRefused) {
  write_history(path_, small_history(3));
  HistoryRun other = small_run();
  other.seed = 8;
  EXPECT_THAT(test::message_of<ConfigError>([&] { History history(path_, other); }),
              HasSubstr("seed 7, 10 samples, batch 4"));
}

TEST_F(HistoryLog, AFileThatIsNoHistoryIsNotOverwritten) {
  put_file(path_, "some notes of mine");
  EXPECT_THROW(History(path_, small_run()), DataError);
  EXPECT_EQ(read_file(path_), "some notes of mine");
}

// A limit on the size of files stands for a full disk: both cut a write short.
TEST_F(HistoryLog, AFullDiskLeavesWholeRecordsAndIsMadeUpForLater) {
  History history(path_, small_run());
  history.begin(small_world(), "");
  note(history, 1);
  const auto full = std::filesystem::file_size(path_);

  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{full + 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(history.step({.step = 2, .loss = 0.5, .drawn = {}}), DataError);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);

  EXPECT_EQ(std::filesystem::file_size(path_), full);
  history.step({.step = 3, .loss = 1.0 / 3, .drawn = {}});
  const auto report = verify_history(path_);
  EXPECT_TRUE(report.holds()) << report.breaches[0];
  EXPECT_EQ(report.steps, 3);
}

TEST_F(HistoryLog, WithABacklogAFullDiskIsWaitedForAndStepsBeyondItAreFilledUp) {
  std::vector<std::string> told;
  Backlog backlog([&](const std::string& line) { told.push_back(line); }, 200);
  History history(path_, small_run(), &backlog);
  history.begin(small_world(), "");

  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{std::filesystem::file_size(path_) + 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  for (int step = 1; step <= 8; ++step)
    history.step({.step = step, .loss = 0.5, .drawn = {}});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);

  EXPECT_LT(history.committed(), 8);
  history.step({.step = 9, .loss = 0.5, .drawn = {}});
  EXPECT_EQ(told.size(), 3u);  // no room, records lost, room again
  const auto report = verify_history(path_);
  EXPECT_TRUE(report.holds()) << report.breaches[0];
  EXPECT_EQ(report.steps, 9);
}

}  // namespace
}  // namespace cohort
