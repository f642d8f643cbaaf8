// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_foretell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_folder.h"

namespace cohort::cli {
namespace {

using testing::HasSubstr;

// A made-up GPU: each block takes 1 ms forward and 2 ms backward.
class BenchForetell : public testing::Test {
 protected:
  BenchForetell() {
    take("resnet50", 256, 18);
    args_.device = "cuda";
    args_.links = "nvlink4-ndr";
    args_.json = true;
  }

  void take(const std::string& name, int samples, int blocks) {
    std::string rows =
        text("what,name,fixed_us,per_sample_us,gb_per_s,hidden\nsamples,", samples,
             ",,,,\nupdate,,0,,1000,\n");
    for (int block = 0; block < blocks; ++block)
      rows += text("forward,", block, ",0,", 1000.0 / samples, ",,\nbackward,", block,
                   ",0,", 2000.0 / samples, ",,\n");
    args_.name = name;
    args_.costs = folder_ / (name + ".csv");
    write_file_atomically(args_.costs, rows);
  }

  // All links at that rate, in place of published ones.
  void link_at(const std::string& gb_per_s) {
    args_.links.clear();
    take(args_.name, 64, 14);
    const std::string table = read_file(args_.costs, ErrorKind::kConfig);
    write_file_atomically(args_.costs, text(table, "link,*,0,,", gb_per_s, ",\n"));
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

// Two slices of 14 blocks. The embedding multiplies nothing, and takes its whole time.
TEST_F(BenchForetell, PartsOfTensorsComputeTheirShareAndTalkInside) {
  take("gpt", 64, 14);
  link_at("1000000");
  EXPECT_NEAR(step_ms("2", ""), 14 * 3, 0.5);
  EXPECT_NEAR(step_ms("2", "tp=2"), 2 * (3 + 13 * 1.5), 0.5);
  // 201 MB of activations (64 rows of 1,024 tokens and 768 values), of which a rank
  // sends half, at least four times per block.
  const double fast = number(rows(), "step_ms");
  link_at("100");
  EXPECT_GT(step_ms("2", "tp=2"), fast + 2 * 12 * 4 * 1.0);
}

TEST_F(BenchForetell, StagesSendWhatBlocksGive) {
  take("gpt", 64, 14);
  link_at("1000000");
  const double fast = step_ms("2", "pp=2");
  link_at("1");
  EXPECT_GT(step_ms("2", "pp=2"), fast + 2 * 201);  // there and back
}

TEST_F(BenchForetell, TextNamesPartsAndStages) {
  take("gpt", 64, 14);
  args_.json = false;
  args_.ranks = "8";
  args_.layout = "tp=2,pp=2";
  EXPECT_THAT(rows(), HasSubstr("gpt, 8 GPUs, tp=2, pp=2, shard=0, batch 512, "));
}

TEST_F(BenchForetell, LayersThatCannotBeCutAreRefused) {
  args_.ranks = "2";
  args_.layout = "tp=2";
  EXPECT_EQ(test::message_of<ConfigError>([&] { rows(); }),
            "[bench] layout tp=2: the layers of resnet50 cannot be cut; legal: "
            "tp=1");
}

}  // namespace
}  // namespace cohort::cli
