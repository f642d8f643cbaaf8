// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/sample_log.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "cohort/core/testing_folder.h"

namespace cohort {
namespace {

class SampleLogTest : public testing::Test {
 protected:
  // What two ranks drew: an order of its own, so that it cannot be made up.
  DrawnSamples drawn(int64_t step) const {
    const Position at = sampler_.position(step - 1);
    return {sampler_.slice(at, 1), sampler_.slice(at, 0)};
  }
  void write(int64_t from, int64_t to) {
    SampleLog log(path_, sampler_, from);
    for (int64_t step = from + 1; step <= to; ++step) log.write(step, drawn(step));
  }
  std::string content() const {
    std::ostringstream out;
    out << std::ifstream(path_).rdbuf();
    return out.str();
  }
  void set(const std::string& text) { std::ofstream(path_) << text; }

  Sampler sampler_{{.size = 50, .batch = 8, .slices = 2, .seed = 3}};
  test::TempFolder folder_;
  std::string path_ = folder_ / "log";
};

TEST_F(SampleLogTest, HoldsWhatItIsToldAndNothingElse) {
  {
    SampleLog log(path_, sampler_, 0);
    log.write(1, {{7, 3}, {}, {9}});
  }
  EXPECT_EQ(content(), "1 1 0 7\n1 1 0 3\n1 1 2 9\n");
}

// Only the step that was being written is lost: a rank that knows it writes it again.
TEST_F(SampleLogTest, KeepsTheWholeStepsOfAWriterThatWasKilled) {
  write(0, 9);
  const std::string whole = content();
  for (size_t length = 0; length <= whole.size(); ++length) {
    set(whole.substr(0, length));
    SampleLog log(path_, sampler_, 9);
    ASSERT_EQ(content(), whole.substr(0, content().size())) << length;
    ASSERT_TRUE(log.last() > 0 || content().empty()) << length;
    for (int64_t step = log.last() + 1; step <= 9; ++step) log.write(step, drawn(step));
    ASSERT_EQ(content(), whole) << "after " << length << " bytes";
  }
}

TEST_F(SampleLogTest, StepsThatNobodyKnowsAreLeftOutAndTheOthersStay) {
  {
    SampleLog log(path_, sampler_, 3);  // the file is gone, or was never there
    EXPECT_EQ(log.last(), 0);
    for (const int64_t step : {4, 6}) log.write(step, drawn(step));
  }
  const std::string two = content();
  EXPECT_EQ(SampleLog(path_, sampler_, 7).last(), 6);
  EXPECT_EQ(content(), two);
  EXPECT_EQ(SampleLog(path_, sampler_, 5).last(), 4);
}

TEST_F(SampleLogTest, LosesTheStepsThatWereTakenBack) {
  write(0, 4);
  const std::string four = content();
  set("");
  write(0, 9);
  write(4, 4);
  EXPECT_EQ(content(), four);
}

TEST_F(SampleLogTest, ARunThatStartsFreshReplacesWhatIsThere) {
  set("1 1 0 7\n");
  write(0, 0);
  EXPECT_EQ(content(), "");
}

}  // namespace
}  // namespace cohort
