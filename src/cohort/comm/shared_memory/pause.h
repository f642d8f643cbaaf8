// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace cohort::shared_memory {

using Nanoseconds = std::chrono::nanoseconds;

// CLOCK_MONOTONIC: the same on every process of the node.
Nanoseconds now();
// The same clock to within a tick of the kernel (1 to 10 ms), for a few ns.
Nanoseconds coarse_now();

// Tells the processor that this is a spin loop.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// Sleeps until `word` is no longer `seen`, someone wakes it, or `most` has passed.
void sleep_on(std::atomic<uint32_t>& word, uint32_t seen, Nanoseconds most);
void wake_all(std::atomic<uint32_t>& word);

// A set of processor cores, as bits.
struct Cores {
  static constexpr int kWords = 16;  // 1,024 cores
  uint64_t bits[kWords] = {};

  void add(const Cores& other);
  int count() const;
};

// Those the calling thread may run on.
Cores available_cores();

}  // namespace cohort::shared_memory
