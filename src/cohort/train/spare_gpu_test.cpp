// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/spare_gpu.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "cohort/comm/local_store.h"

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

// In each world anew: a rank that has taken one keeps it in the next.
TEST(SpareGpu, RanksAgreeBeforeTheyConnect) {
  LocalStore store;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&store, rank] {
      int mine = rank == 1 ? kNoGpu : 2 - rank;
      for (int generation = 0; generation < 2; ++generation) {
        const World world{.rank = rank, .size = 3, .generation = generation};
        mine = settle_gpu(world, store, mine, 3, std::chrono::seconds(20));
        EXPECT_EQ(mine, 2 - rank);
      }
    });
  for (auto& rank : ranks) rank.join();
}

}  // namespace
}  // namespace cohort
