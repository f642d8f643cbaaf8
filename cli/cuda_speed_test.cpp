// SPDX-License-Identifier: Apache-2.0
#include "cli/cuda_speed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/train/gpu_peak.h"

namespace cohort::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

// GPT-2 124M counted by hand: multiplications per token in 12 blocks (q, k and v; the
// projection; two of four times the width), in attention over 1,024 tokens (scores and
// their sums of values), and in the head, whose rows are padded. Two FLOPs each; a step
// has three forwards' worth.
double flops_of_a_token() {
  const double width = 768, tokens = 1024, rows = 50304;
  const double block = (3 + 1 + 4 + 4) * width * width + 2 * tokens * width;
  return 3 * 2 * (12 * block + rows * width);
}

TEST(CudaSpeed, CountsTheOperationsOfAStep) {
  const CudaSpeed speed = speed_of(find_cuda_case("gpt"), 64, 0.5, std::nullopt);
  ASSERT_TRUE(speed.flops_per_step);
  EXPECT_NEAR(*speed.flops_per_step / (64 * 1024 * flops_of_a_token()), 1, 1e-3);
  EXPECT_EQ(speed.tokens_per_second, 64 * 1024 / 0.5);
  EXPECT_FALSE(speed.mfu);
}

// Measured on that GPU: 533,903 tokens in a second (docs/measured.md).
TEST(CudaSpeed, SharesThePeakOfTheDataSheet) {
  const auto peak = peak_flops("NVIDIA H200", at::kBFloat16);
  const double step_s = 64 * 1024 / 533'903.0;
  const CudaSpeed speed = speed_of(find_cuda_case("gpt"), 64, step_s, peak);
  std::printf("gpt 124M: %.4g FLOP per step of 64 x 1024, %.2f %% of %.4g\n",
              *speed.flops_per_step, 100 * *speed.mfu, *peak);
  EXPECT_NEAR(*speed.mfu, 533'903 * flops_of_a_token() / 989e12, 1e-3);
  EXPECT_THAT(speed.text(), HasSubstr("46."));
}

TEST(CudaSpeed, AModelWithoutTokensHasNoneInItsRow) {
  JsonObject images, text;
  add_speed(speed_of(find_cuda_case("resnet50-cifar"), 4, 0.5, 1e12), images);
  add_speed(speed_of(find_cuda_case("gpt"), 4, 0.5, 1e12), text);
  EXPECT_THAT(images.text(), Not(HasSubstr("tokens_per_second")));
  EXPECT_THAT(images.text(), HasSubstr("\"flops_per_step\":"));
  EXPECT_THAT(text.text(), HasSubstr("\"tokens_per_second\":8192"));
  EXPECT_THAT(text.text(), HasSubstr("\"mfu\":"));
}

}  // namespace
}  // namespace cohort::cli
