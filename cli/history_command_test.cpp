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
using namespace cohort::test;  // NOLINT: a test

class HistoryCommand : public HistoryFolder {
 protected:
  HistoryCommand() {
    auto records = small_history(4);
    records.emplace_back(HistoryRollback{4, 3, "a\nsnapshot"});
    records.emplace_back(HistoryEnd{3, 15, 103});
    write_history(path_, records);
  }
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
            "3 steps, 1 whole epoch, 1 world of 1 command, 1 rollback (1 step), 1 "
            "comparison\nholds\n");
  EXPECT_THAT(verified(0, true), HasSubstr("\"holds\":true,\"records\":8"));
}

TEST_F(HistoryCommand, BreachesAreShownUpToTen) {
  auto records = small_history(0);
  for (int i = 0; i < 12; ++i) records.emplace_back(small_step(4 * i + 1));
  write_history(path_, records);
  const std::string out = verified(1);
  EXPECT_THAT(out,
              HasSubstr("record 3, step 5: is committed; expected step 2, missing"));
  EXPECT_THAT(out, HasSubstr("more\ndoes not hold\n"));
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1 + 10 + 2);
}

TEST_F(HistoryCommand, ATornTailIsReported) {
  put_file(path_, bytes_of(small_history(2)) + "\x03");
  EXPECT_THAT(verified(0), HasSubstr("the last record was cut short (1 bytes of it)"));
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

TEST_F(HistoryCommand, OnlyTheLastAreShownIfAsked) {
  EXPECT_EQ(shown(2, true),
            "{\"record\":\"rollback\",\"from\":4,\"to\":3,\"why\":\"a\\nsnapshot\","
            "\"damaged\":false}\n"
            "{\"record\":\"end\",\"step\":3,\"signal\":15,\"weights_hash\":"
            "\"0000000000000067\"}\n");
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
