// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/spare_gpu.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/ranks.h"

namespace cohort {
namespace {

TEST(SpareGpu, WhoHasAGpuKeepsItAndOthersTakeTheFreeOnesInTheirOrder) {
  const std::vector<int64_t> chosen = {2, kNoGpu, 0, kNoGpu};
  EXPECT_EQ(gpu_for(chosen, 0, 4), 2);
  EXPECT_EQ(gpu_for(chosen, 1, 4), 1);
  EXPECT_EQ(gpu_for(chosen, 2, 4), 0);
  EXPECT_EQ(gpu_for(chosen, 3, 4), 3);
}

TEST(SpareGpu, WithMoreRanksThanGpusTheyShare) {
  const std::vector<int64_t> chosen = {0, 0, kNoGpu};
  EXPECT_EQ(gpu_for(chosen, 2, 1), 0);
}

TEST(SpareGpu, RanksAgree) {
  test::run_ranks({.backend = "local", .size = 3}, [](Communicator& comm) {
    const int mine = comm.rank() == 1 ? kNoGpu : 2 - comm.rank();
    const int expected[] = {2, 1, 0};
    EXPECT_EQ(settle_gpu(comm, mine, 3), expected[comm.rank()]);
  });
}

}  // namespace
}  // namespace cohort
