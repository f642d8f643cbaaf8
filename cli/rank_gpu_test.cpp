// SPDX-License-Identifier: Apache-2.0
#include "cli/rank_gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/engine/cuda/cuda_lane.h"

namespace cohort::cli {
namespace {

TEST(RankGpu, MoreRanksThanGpusAreRefusedUnlessTheyMayShare) {
  const NodeGpus two{.count = 2};
  EXPECT_EQ(why_no_nccl_ranks(two, 2, false), "");
  EXPECT_EQ(why_no_nccl_ranks(two, 4, true), "");
  EXPECT_EQ(
      why_no_nccl_ranks(two, 3, false),
      "--backend nccl with 3 ranks on a node that has 2 GPUs; legal: a rank for "
      "each GPU at most, --backend auto, or, for tests, comm.nccl_share_gpu=true");
  EXPECT_THAT(why_no_nccl_ranks({.count = 1}, 2, false),
              testing::HasSubstr("a node that has 1 GPU;"));
}

TEST(RankGpu, ADriverThatIsTooOldIsSaidAsCudaSaysIt) {
  const NodeGpus old{.fault = "The NVIDIA driver on your system is too old"};
  EXPECT_EQ(why_no_nccl_ranks(old, 1, true),
            "--device cuda: The NVIDIA driver on your system is too old; legal here: "
            "cpu");
}

// Whoever looks has not started CUDA.
TEST(RankGpu, LooksInAChild) {
  const NodeGpus found = look_for_gpus();
  EXPECT_EQ(found.fault.empty(), found.count > 0);
  if (cuda_is_built()) return;
  EXPECT_EQ(found.fault, why_no_cuda());
}

}  // namespace
}  // namespace cohort::cli
