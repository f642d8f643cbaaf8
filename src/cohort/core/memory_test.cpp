// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/memory.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace cohort {
namespace {

TEST(Memory, CountsWhatIsHeldAndTheMostEverHeld) {
  MemoryCounter counter;
  {
    CountedMemory a(counter, 100);
    CountedMemory b(counter, 50);
    EXPECT_EQ(counter.current(), 150);
  }
  CountedMemory c(counter, 20);
  EXPECT_EQ(counter.current(), 20);
  EXPECT_EQ(counter.peak(), 150);
  counter.reset_peak();
  EXPECT_EQ(counter.peak(), 20);
}

TEST(Memory, CountsAcrossThreads) {
  MemoryCounter counter;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 1000; ++i) CountedMemory share(counter, 7);
        counter.add(1);
      });
    }
  }
  EXPECT_EQ(counter.current(), 3);
  EXPECT_GE(counter.peak(), 7);
  EXPECT_LE(counter.peak(), 3 * 7 + 3);
}

TEST(Memory, ProcessPeakSeesAndKeepsATouchedBlock) {
  constexpr int64_t kBytes = 64 << 20;
  const int64_t before = process_memory();
  {
    std::vector<char> block(kBytes, 1);
    EXPECT_GE(process_memory(), before + kBytes / 2);
  }
  EXPECT_GE(process_peak_memory(), before + kBytes / 2);
}

TEST(Memory, ThatIsNotThereIsRefusedBeforeItIsAskedFor) {
  const int64_t left = memory_left();
  EXPECT_GT(left, 0);
  EXPECT_LE(left, available_memory() + (int64_t{1} << 30));
  require_memory(1 << 20, ErrorKind::kData, "x");
  try {
    require_memory(int64_t{1} << 60, ErrorKind::kCheckpoint, "tensor 'w'");
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_EQ(
        std::string(error.what()).rfind("tensor 'w': needs 1152921504606846976", 0), 0u)
        << error.what();
  }
}

}  // namespace
}  // namespace cohort
