// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace cohort::shm {

// Closes what it holds.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int get() const { return fd_; }

 private:
  int fd_;
};

// A whole memfd, mapped.
class Mapping {
 public:
  Mapping() = default;
  Mapping(int fd, size_t bytes);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  bool holds(const void* data, size_t bytes) const {
    const auto at = reinterpret_cast<uintptr_t>(data);
    const auto begin = reinterpret_cast<uintptr_t>(data_);
    return at >= begin && at + bytes <= begin + bytes_;
  }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Stretches of memfds one behind the other, mapped. All are whole pages.
class JoinedMapping {
 public:
  explicit JoinedMapping(size_t bytes);
  JoinedMapping(const JoinedMapping&) = delete;
  JoinedMapping& operator=(const JoinedMapping&) = delete;
  ~JoinedMapping();

  // Bytes [offset, offset + bytes) of the file are at `at` from now on.
  void put(size_t at, int fd, size_t offset, size_t bytes);
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_;
};

// What lies in the first page of a heap, so that a peer knows it has the right one.
struct HeapHeader {
  uint64_t cookie[2];
};

// A rank's shared memory: a sparse memfd with no name, so that nothing is left
// behind however its ranks end. Blocks are whole pages; pages are there before a
// block is handed out (a full machine is an error, not a SIGBUS) and given back to
// the kernel when it is freed, which also zeroes them.
//
// Thread safety: any thread may call anything.
class Heap {
 public:
  explicit Heap(size_t bytes);

  const Mapping& mapping() const { return mapping_; }
  int fd() const { return fd_.get(); }
  const HeapHeader& header() const {
    return *reinterpret_cast<const HeapHeader*>(mapping_.data());
  }

  // Throws ConfigError when there is not so much.
  void* allocate(size_t bytes);
  void release(void* block);
  size_t allocated_bytes() const;

 private:
  size_t take(size_t bytes);
  void give(size_t offset);

  Descriptor fd_;
  Mapping mapping_;
  size_t page_;
  mutable std::mutex mutex_;
  std::map<size_t, size_t> free_;  // offset to bytes; neighbours are merged
  std::map<size_t, size_t> used_;
};

}  // namespace cohort::shm
