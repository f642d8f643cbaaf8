// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_foretell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/testing_folder.h"

namespace cohort::cli {
namespace {

using testing::HasSubstr;

// A made-up GPU: each of the 18 blocks takes 1 ms forward and 2 ms backward.
class BenchForetell : public testing::Test {
 protected:
  BenchForetell() {
    std::string rows = "what,name,fixed_us,per_sample_us,gb_per_s,hidden\n";
    rows += "samples,256,,,,\nupdate,,0,,1000,\n";
    for (int block = 0; block < 18; ++block)
      rows += text("forward,", block, ",1000,0,,\nbackward,", block, ",2000,0,,\n");
    args_.name = "resnet50";
    args_.device = "cuda";
    args_.costs = folder_ / "costs.csv";
    args_.links = "nvlink4-ndr";
    args_.json = true;
    write_file_atomically(args_.costs, rows);
  }

  std::string rows() const {
    std::ostringstream out;
    foretell_cuda(args_, out);
    return out.str();
  }

  double number(const std::string& row, const std::string& field) const {
    const size_t at = row.find("\"" + field + "\":");
    EXPECT_NE(at, std::string::npos) << row;
    return std::stod(row.substr(at + field.size() + 3));
  }
  double step_ms(const std::string& ranks, const std::string& layout) {
    args_.ranks = ranks;
    args_.layout = layout;
    return number(rows(), "step_ms");
  }

  test::TempFolder folder_;
  BenchTrainArgs args_;
};

TEST_F(BenchForetell, OneRankTakesWhatItsBlocksAndUpdatesDo) {
  // 25.6 M weights of 4 bytes at 1000 GB/s are 0.1 ms.
  EXPECT_NEAR(step_ms("1", ""), 54.1, 0.05);
}

TEST_F(BenchForetell, EveryRowSaysThatNothingWasRun) {
  args_.ranks = "8,64";
  std::istringstream lines(rows());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_THAT(line, HasSubstr(R"("state":"not run")"));
    EXPECT_THAT(line, HasSubstr("links published: NVLink 4"));
  }
  EXPECT_EQ(count, 2);
  args_.json = false;
  EXPECT_THAT(rows(), HasSubstr("64 GPUs, shard=0, batch 16384, float32: "));
  EXPECT_THAT(rows(), HasSubstr(" samples/s (not run)"));
}

// 102 MB of gradients: 0.4 ms over NVLink, 4 ms over one adapter for each GPU.
TEST_F(BenchForetell, NodesCostWhatTheirAdaptersDo) {
  const double alone = step_ms("1", "");
  EXPECT_NEAR(step_ms("8", "") - alone, 0.4 + 0.1, 0.2);
  EXPECT_NEAR(step_ms("64", "") - alone, 4.0 + 0.2, 0.4);
}

TEST_F(BenchForetell, ShardedParametersTravelMore) {
  EXPECT_GT(step_ms("64", "shard=3"), step_ms("64", ""));
  EXPECT_LE(number(rows(), "overlapped_step_ms"), number(rows(), "step_ms"));
}

TEST_F(BenchForetell, ATableWithoutLinksIsRefusedForSeveralRanks) {
  args_.ranks = "2";
  args_.links.clear();
  EXPECT_THROW(rows(), ConfigError);
  args_.ranks = "1";
  EXPECT_NO_THROW(rows());
}

}  // namespace
}  // namespace cohort::cli
