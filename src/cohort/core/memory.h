// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "cohort/core/error.h"

namespace cohort {

// Bytes that parts of the library say they hold, and the most they ever held at
// once. Each part reports what it allocates; nothing is intercepted. Any thread may
// call.
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
class CountedMemory {
 public:
  CountedMemory(MemoryCounter& counter, int64_t bytes)
      : counter_(counter), bytes_(bytes) {
    counter_.add(bytes_);
  }
  ~CountedMemory() { counter_.subtract(bytes_); }
  CountedMemory(const CountedMemory&) = delete;
  CountedMemory& operator=(const CountedMemory&) = delete;

 private:
  MemoryCounter& counter_;
  int64_t bytes_;
};

// While it lives, counts the memory of tensors that this thread allocates and frees:
// LibTorch reports it, and so does what hands out memory of its own (report_memory).
// Backward on the CPU runs in the thread that asks for it. It costs one lock per
// allocation, so it is for measuring. Scopes of one thread end in reverse order.
class TensorMemoryScope {
 public:
  explicit TensorMemoryScope(MemoryCounter& counter);
  ~TensorMemoryScope();
  TensorMemoryScope(const TensorMemoryScope&) = delete;
  TensorMemoryScope& operator=(const TensorMemoryScope&) = delete;

 private:
  struct Guard;
  std::unique_ptr<Guard> guard_;
};

// Tells the scope of this thread, if there is one, of memory that no allocator of
// LibTorch's knows; negative when it is given back.
void report_memory(void* data, int64_t bytes);

// What this machine can still give to processes, in bytes.
int64_t available_memory();
// What this process can still have: as above, but no more than its control group and
// `ulimit -v` leave it.
int64_t memory_left();

// Throws the error of `kind` if memory cannot hold so many bytes more. Code that is
// about to allocate what a file or a peer asked for calls this first: the system would
// let it, and kill some process later. `what` begins the message. Costs nothing for
// less than kSmallMemory, which the bytes of a file or message bound.
inline constexpr int64_t kSmallMemory = 16 << 20;
void require_memory(int64_t bytes, ErrorKind kind, const std::string& what);

// Physical memory of this process in bytes, now and at its peak. After a fork the
// peak is the child's own. Shared pages count in every process that touched them.
int64_t process_memory();
int64_t process_peak_memory();
// The part of process_memory() that is shared with others, or may be.
int64_t process_shared_memory();

}  // namespace cohort
