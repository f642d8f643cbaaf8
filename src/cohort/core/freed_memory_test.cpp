// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/freed_memory.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

namespace cohort {
namespace {

long faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// What a step does: takes blocks of all sizes, touches every page, frees all.
void take_and_free() {
  std::vector<at::Tensor> blocks;
  for (int64_t kilobytes = 64; kilobytes <= 65536; kilobytes *= 2)
    blocks.push_back(at::ones({kilobytes * 256}));
}

// The allocators serve the whole process, so it is another one that is changed.
TEST(FreedMemory, BlocksAreTakenAgainWithoutFaults) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    at::set_num_threads(1);
    keep_freed_memory();
    // Blocks find their places after a few steps: small ones lie between them.
    constexpr int kSteps = 15;
    for (int i = 0; i < kSteps; ++i) take_and_free();
    // The wheel's allocator gives pages back some milliseconds later, if it may.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const long before = faults();
    for (int i = 0; i < kSteps; ++i) take_and_free();
    ::_exit(faults() - before < 49'000 ? 0 : 1);  // one in ten of 490,000 pages
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace cohort
