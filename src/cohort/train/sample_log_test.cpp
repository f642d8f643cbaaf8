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
  void write(int64_t from, int64_t to) {
    SampleLog log(path_, sampler_, 2, from);
    for (int64_t step = from; step < to; ++step) log.write(step);
  }
  std::string content() const {
    std::ostringstream out;
    out << std::ifstream(path_).rdbuf();
    return out.str();
  }
  void set(const std::string& text) { std::ofstream(path_) << text; }

  Sampler sampler_{{.size = 50, .batch = 8, .slices = 4, .seed = 3}};
  test::TempFolder folder_;
  std::string path_ = folder_ / "log";
};

TEST_F(SampleLogTest, GoesOnWhereverItsWriterWasKilled) {
  write(0, 9);
  const std::string whole = content();
  for (size_t length = 0; length <= whole.size(); ++length) {
    set(whole.substr(0, length));
    write(9, 9);
    ASSERT_EQ(content(), whole) << "after " << length << " bytes";
  }
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
