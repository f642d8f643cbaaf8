// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/shm/heap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "cohort/core/error.h"

namespace cohort::shm {

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

namespace {

constexpr int kReadWrite = PROT_READ | PROT_WRITE;

// The heaps are as large as the machine's memory: a crashed rank's core file is not.
std::byte* map(void* where, size_t bytes, int protection, int flags, int fd,
               size_t offset) {
  void* const data = mmap(where, bytes, protection, flags | MAP_NORESERVE, fd,
                          static_cast<off_t>(offset));
  if (data == MAP_FAILED)
    throw ConfigError(text("[comm.shm] cannot map ", bytes,
                           " bytes of shared memory: ", std::strerror(errno)));
  madvise(data, bytes, MADV_DONTDUMP);
  return static_cast<std::byte*>(data);
}

}  // namespace

Mapping::Mapping(int fd, size_t bytes)
    : data_(map(nullptr, bytes, kReadWrite, MAP_SHARED, fd, 0)), bytes_(bytes) {}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_) munmap(data_, bytes_);
}

JoinedMapping::JoinedMapping(size_t bytes)
    : data_(map(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
      bytes_(bytes) {}

JoinedMapping::~JoinedMapping() { munmap(data_, bytes_); }

void JoinedMapping::put(size_t at, int fd, size_t offset, size_t bytes) {
  COHORT_CHECK(at + bytes <= bytes_, at + bytes, " of ", bytes_, " bytes");
  map(data_ + at, bytes, kReadWrite, MAP_SHARED | MAP_FIXED, fd, offset);
}

Heap::Heap(size_t bytes)
    : fd_(memfd_create("cohort", MFD_CLOEXEC)),
      page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
  if (fd_.get() < 0 || ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) {
    throw ConfigError(
        text("[comm.shm] cannot make shared memory: ", std::strerror(errno)));
  }
  mapping_ = Mapping(fd_.get(), bytes);
  free_[0] = bytes;
  auto* header = static_cast<HeapHeader*>(allocate(sizeof(HeapHeader)));
  if (getrandom(header->cookie, sizeof(header->cookie), 0) != sizeof(header->cookie)) {
    throw ConfigError("[comm.shm] no random numbers from the system");
  }
}

void* Heap::allocate(size_t bytes) {
  const size_t rounded = (std::max<size_t>(bytes, 1) + page_ - 1) / page_ * page_;
  const size_t offset = take(rounded);
  int error = 0;
  do {
    error = fallocate(fd_.get(), 0, static_cast<off_t>(offset),
                      static_cast<off_t>(rounded)) == 0
                ? 0
                : errno;
  } while (error == EINTR);
  if (error != 0) {
    give(offset);
    throw ConfigError(
        text("[comm.shm] allocate: ", bytes,
             " bytes of shared memory are not there: ", std::strerror(error)));
  }
  return mapping_.data() + offset;
}

void Heap::release(void* block) {
  give(static_cast<size_t>(static_cast<std::byte*>(block) - mapping_.data()));
}

size_t Heap::allocated_bytes() const {
  std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const auto& [offset, size] : used_) bytes += size;
  return bytes;
}

size_t Heap::take(size_t bytes) {
  std::lock_guard lock(mutex_);
  for (auto at = free_.begin(); at != free_.end(); ++at) {
    const auto [offset, room] = *at;
    if (room < bytes) continue;
    free_.erase(at);
    if (room > bytes) free_[offset + bytes] = room - bytes;
    used_[offset] = bytes;
    return offset;
  }
  throw ConfigError(text("[comm.shm] allocate: ", bytes,
                         " bytes; the heap of a rank has ", mapping_.bytes(),
                         " in all"));
}

void Heap::give(size_t offset) {
  std::lock_guard lock(mutex_);
  const auto used = used_.extract(offset);
  COHORT_CHECK(!used.empty(), "no block at ", offset);
  size_t bytes = used.mapped();
  // Cannot fail on a memfd; were it to, the next block here would not be zeroed.
  if (fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) {
    std::memset(mapping_.data() + offset, 0, bytes);
  }
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_[offset] = bytes;
}

}  // namespace cohort::shm
