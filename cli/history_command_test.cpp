// SPDX-License-Identifier: Apache-2.0
#include "cli/history_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cohort/core/error.h"
#include "cohort/elastic/testing_history.h"

namespace cohort::cli {
namespace {

using testing::HasSubstr;
using testing::Not;
using namespace cohort::test;  // NOLINT: a test

class HistoryCommand : public HistoryFolder {
 protected:
  HistoryCommand() {
    auto records = small_history(4);
    records.emplace_back(HistoryRollback{4, 3, "a\nsnapshot"});
    records.emplace_back(HistoryEnd{3, 15, RecordedHash{103}});
    write_history(path_, records);
  }
  std::string other_ = folder_ / "other.log";
  std::string verified(int code, bool json = false) {
    std::ostringstream out;
    EXPECT_EQ(verify_history({.path = path_, .json = json}, out), code);
    return out.str();
  }
  std::string shown(int64_t last, bool json = false) {
    std::ostringstream out;
    EXPECT_EQ(show_history({.path = path_, .last = last, .json = json}, out), 0);
    return out.str();
  }
};

TEST_F(HistoryCommand, AHistoryThatHoldsIsSummedUp) {
  EXPECT_EQ(verified(0),
            "3 steps, 1 whole epoch, 1 world of 1 command, 1 rollback (1 step)\n"
            "  in order: 3 steps\n"
            "  samples as drawn: nothing to compare\n"
            "  samples by the number of the step alone: 3 steps (an older program "
            "noted them, whoever knew was lost, or the file was cut)\n"
            "  generations: 1 world\n"
            "  equal bits of a step: 1 comparison, 0 steps made again\n"
            "holds\n");
  EXPECT_THAT(verified(0, true), HasSubstr("\"holds\":true,\"records\":8"));
}

TEST_F(HistoryCommand, EachPropertyIsToldWithItsFacts) {
  std::vector<HistoryRecord> records = {small_run(), small_world()};
  for (int64_t step = 1; step <= 4; ++step) records.emplace_back(drawn_step(step));
  write_history(other_, records);
  records.emplace_back(HistoryRollback{4, 3, "a snapshot"});
  records.emplace_back(drawn_step(4));
  write_history(path_, records);
  std::ostringstream out;
  EXPECT_EQ(verify_history({.path = path_, .other = other_}, out), 0);
  EXPECT_EQ(out.str(),
            "4 steps, 1 whole epoch, 1 world of 1 command, 1 rollback (1 step)\n"
            "  in order: 4 steps\n"
            "  samples as drawn: 4 steps, 1 whole epoch\n"
            "  generations: 1 world\n"
            "  equal bits of a step: 1 comparison, 1 step made again\n"
            "  equal in both: 8 values at 4 steps\n"
            "holds\n");
}

TEST_F(HistoryCommand, BreachesAreShownUpToTen) {
  auto records = small_history(0);
  for (int i = 0; i < 12; ++i) records.emplace_back(small_step(4 * i + 1));
  write_history(path_, records);
  const std::string out = verified(1);
  EXPECT_THAT(out,
              HasSubstr("record 3, step 5: is committed; expected step 2, missing"));
  EXPECT_THAT(out, HasSubstr("more\ndoes not hold\n"));
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 5 + 10 + 2);
}

TEST_F(HistoryCommand, ATornTailIsReported) {
  put_file(path_, bytes_of(small_history(2)) + "\x03");
  EXPECT_THAT(verified(0), HasSubstr("the last record was cut short (1 bytes of it)"));
}

TEST_F(HistoryCommand, AHistoryWithoutAStepProvesNothing) {
  write_history(path_, small_history(0));
  const std::string out = verified(3);
  EXPECT_THAT(out, HasSubstr("nothing to compare"));
  EXPECT_THAT(out, Not(HasSubstr("holds")));
}

TEST_F(HistoryCommand, RunsThatAreNotRelatedAreRefused) {
  const auto refusal = [&](auto change) -> std::string {
    auto records = small_history(3);
    change(std::get<HistoryRun>(records[0]));
    write_history(other_, records);
    std::ostringstream out;
    try {
      return text("code ", verify_history({.path = path_, .other = other_}, out));
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  EXPECT_THAT(refusal([](HistoryRun& run) { run.seed = 8; }),
              HasSubstr("seed 8, 10 samples, batch 4, 2 slices, exact; legal: a run "
                        "with seed 7, 10 samples, batch 4, 2 slices, exact"));
  EXPECT_THAT(refusal([](HistoryRun& run) { run.exact = false; }),
              HasSubstr("2 slices; legal"));
  EXPECT_THAT(refusal([](HistoryRun& run) { run.slices = 1; }),
              HasSubstr("1 slices, exact; legal"));
  EXPECT_EQ(refusal([](HistoryRun&) {}), "code 0");
}

// With losses and hashes unknown in one of them, and with no step in both.
TEST_F(HistoryCommand, RunsWithNothingInCommonDoNotHold) {
  auto records = small_history(3);
  for (size_t i = 2; i < records.size(); ++i) {
    std::get<HistoryStep>(records[i]).loss = {};
    std::get<HistoryStep>(records[i]).hash = {};
  }
  write_history(other_, records);
  std::ostringstream unknown;
  EXPECT_EQ(verify_history({.path = path_, .other = other_}, unknown), 3);
  EXPECT_THAT(unknown.str(), HasSubstr("nothing to compare"));
  EXPECT_THAT(unknown.str(), HasSubstr("3 steps are in both"));

  HistoryRun later = small_run();
  later.base = 6;
  write_history(other_, {later, small_world(0, 6), small_step(7)});
  std::ostringstream apart;
  EXPECT_EQ(verify_history({.path = path_, .other = other_, .json = true}, apart), 3);
  EXPECT_THAT(apart.str(), HasSubstr("\"holds\":false"));
}

TEST_F(HistoryCommand, AHistoryIsNotComparedWithItself) {
  std::ostringstream out;
  EXPECT_THROW(verify_history({.path = path_, .other = path_}, out), ConfigError);
}

TEST_F(HistoryCommand, AFileThatIsNoneIsADataError) {
  put_file(path_, "hello");
  std::ostringstream out;
  EXPECT_THROW(verify_history({.path = path_}, out), DataError);
  EXPECT_THROW(show_history({.path = path_}, out), DataError);
}

TEST_F(HistoryCommand, EveryRecordIsALine) {
  const std::string out = shown(0);
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 8);
  EXPECT_THAT(out,
              HasSubstr("step      4, epoch 2, samples 0..3, loss 0.25, hash "
                        "0000000000000068\nrollback  from step 4 to 3: a?snapshot\n"
                        "end       at step 3, stopped by signal 15"));
}

TEST_F(HistoryCommand, AnOlderKindOfHashIsNamed) {
  write_history(path_, {small_run(), small_world(), stream_step(1)});
  EXPECT_THAT(shown(1), HasSubstr(", hash 0000000000000065 (stream)"));
  EXPECT_THAT(shown(1, true), HasSubstr("\"hash_kind\":\"stream\""));

  write_history(other_, {small_run(), small_world(), small_step(1)});
  std::ostringstream out;
  EXPECT_EQ(verify_history({.path = path_, .other = other_}, out), 0);
  EXPECT_THAT(out.str(), HasSubstr("not compared: 1 step whose hashes are of two"));
}

TEST_F(HistoryCommand, OnlyTheLastAreShownIfAsked) {
  EXPECT_EQ(shown(2, true),
            "{\"record\":\"rollback\",\"from\":4,\"to\":3,\"why\":\"a\\nsnapshot\","
            "\"damaged\":false}\n"
            "{\"record\":\"end\",\"step\":3,\"signal\":15,\"weights_hash\":"
            "\"0000000000000067\",\"hash_kind\":\"pieces\"}\n");
}

TEST_F(HistoryCommand, ARollbackOfDamagedStepsSaysSo) {
  auto records = small_history(4);
  records.emplace_back(HistoryRollback{4, 3, "drift", /*damaged=*/true});
  write_history(path_, records);
  EXPECT_EQ(shown(1), "rollback  from step 4 to 3, damaged: drift\n");
  EXPECT_THAT(shown(1, true), HasSubstr("\"why\":\"drift\",\"damaged\":true}"));
}

}  // namespace
}  // namespace cohort::cli
