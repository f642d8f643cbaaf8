// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/shared_memory/pause.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <bit>
#include <climits>

namespace cohort::shared_memory {
namespace {

Nanoseconds read_clock(clockid_t id) {
  timespec time;
  clock_gettime(id, &time);
  return std::chrono::seconds(time.tv_sec) + Nanoseconds(time.tv_nsec);
}

}  // namespace

Nanoseconds now() { return read_clock(CLOCK_MONOTONIC); }

Nanoseconds coarse_now() { return read_clock(CLOCK_MONOTONIC_COARSE); }

// Not the private kind of futex: the waker may be another process.
void sleep_on(std::atomic<uint32_t>& word, uint32_t seen, Nanoseconds most) {
  static_assert(sizeof(word) == sizeof(uint32_t));
  const auto count = most.count();
  timespec time{.tv_sec = count / 1'000'000'000, .tv_nsec = count % 1'000'000'000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &time,
          nullptr, 0);
}

void wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr,
          nullptr, 0);
}

void Cores::add(const Cores& other) {
  for (int i = 0; i < kWords; ++i) bits[i] |= other.bits[i];
}

int Cores::count() const {
  int total = 0;
  for (const uint64_t word : bits) total += std::popcount(word);
  return total;
}

Cores available_cores() {
  Cores cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int i = 0; i < CPU_SETSIZE && i < Cores::kWords * 64; ++i) {
    if (CPU_ISSET(i, &set)) cores.bits[i / 64] |= uint64_t{1} << (i % 64);
  }
  return cores;
}

}  // namespace cohort::shared_memory
