// SPDX-License-Identifier: Apache-2.0
#include "cli/node_gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/comm/local/local.h"
#include "cohort/core/error.h"
#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/train/rank_gpu.h"

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

// The process that looks has not started CUDA.
TEST(RankGpu, LooksInAChild) {
  const NodeGpus found = look_for_gpus();
  EXPECT_EQ(found.fault.empty(), found.count > 0);
  if (cuda_is_built()) return;
  EXPECT_EQ(found.fault, why_no_cuda());
}

// A rank alone needs nothing, and where there is no CUDA nobody has tensors of a GPU.
TEST(RankGpu, TensorsOfTheGpuNeedCuda) {
  auto alone = make_local(1, std::chrono::seconds(20));
  EXPECT_EQ(with_tensors_of_gpu(std::move(alone[0]), 0, {}, true).over_host, "");
  if (cuda_is_built()) return;
  auto two = make_local(2, std::chrono::seconds(20));
  EXPECT_THROW(with_tensors_of_gpu(std::move(two[0]), 0, {}, true), ConfigError);
}

TEST(RankGpu, AStepThatIsNoGraphIsSaidSoWithTheReason) {
  EXPECT_EQ(why_no_graph(false, ""), "");
  EXPECT_THAT(why_no_graph(true, ""), testing::HasSubstr("pipeline"));
  EXPECT_EQ(
      why_no_graph(false, "--backend gloo"),
      "--backend gloo; so tensors of the GPU go over the host, whose thread must "
      "be told of each call: the step is no CUDA graph, so each kernel is started "
      "by itself");
}

}  // namespace
}  // namespace cohort::cli
