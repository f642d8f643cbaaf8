// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace cohort {

// Bytes that parts of the library say they hold, and the most they ever held at
// once. Those who allocate report; nothing is intercepted. Any thread may call.
class MemoryCounter {
 public:
  void add(int64_t bytes);
  void subtract(int64_t bytes) { current_.fetch_sub(bytes, std::memory_order_relaxed); }

  int64_t current() const { return current_.load(std::memory_order_relaxed); }
  int64_t peak() const { return peak_.load(std::memory_order_relaxed); }
  // From here on, the peak is that of what follows.
  void reset_peak() { peak_.store(current(), std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> current_{0};
  std::atomic<int64_t> peak_{0};
};

// Counts some bytes for as long as it lives.
class MemoryShare {
 public:
  MemoryShare(MemoryCounter& counter, int64_t bytes)
      : counter_(counter), bytes_(bytes) {
    counter_.add(bytes_);
  }
  ~MemoryShare() { counter_.subtract(bytes_); }
  MemoryShare(const MemoryShare&) = delete;
  MemoryShare& operator=(const MemoryShare&) = delete;

 private:
  MemoryCounter& counter_;
  int64_t bytes_;
};

// Physical memory of this process in bytes, now and at its peak. After a fork the
// peak is the child's own. Shared pages count in every process that touched them.
int64_t process_memory();
int64_t process_peak_memory();

}  // namespace cohort
