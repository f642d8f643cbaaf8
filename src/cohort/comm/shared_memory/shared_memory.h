// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace cohort::shared_memory {

// Where something lies in memory that all ranks of the node reach. The same
// number means the same bytes on every rank; 0 is nowhere.
using Address = uint64_t;

// The memory that ranks of one node share, as one of them sees it. It is all that
// tells ranks as threads from ranks as processes.
//
// Thread safety: any thread may call anything.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // The name errors carry: "shm" or "local".
  virtual std::string name() const = 0;

  // Zeroed, page aligned, backed by real pages. Throws ConfigError when there is
  // not so much.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* block) = 0;

  // By this rank, from what no other process may call its own; 0 where there is none.
  virtual size_t allocated_bytes() const { return 0; }

  // 0 where peers cannot see [data, data + bytes).
  virtual Address address_of(const void* data, size_t bytes) const = 0;
  virtual void* at(Address address) const = 0;

  // `bytes` at each of the addresses, one behind the other: the same memory once more.
  // Both are multiples of join_alignment(), which is 0 where memory cannot be had
  // twice.
  virtual size_t join_alignment() const { return 0; }
  virtual std::shared_ptr<void> join(std::span<const Address> /*addresses*/,
                                     size_t /*bytes*/) const {
    return nullptr;
  }

  // True where all that peers can see was allocate()d here: a block that one may still
  // write to is then simply not used again. Elsewhere one has to wait for that peer.
  virtual bool owns_what_peers_see() const { return false; }

  // The process of a rank of the whole world, and whether it has ended.
  virtual int pid_of(int world_rank) const = 0;
  virtual bool is_gone(int world_rank) const = 0;

  // Releases `block` once `left`, which lies inside it, has reached `size`: peers
  // may look at a control block after the rank that made it has left.
  void retire(void* block, const std::atomic<uint32_t>& left, uint32_t size) {
    std::lock_guard lock(mutex_);
    retired_.push_back({block, &left, size});
  }
  // Holds `blocks` until `is_over`.
  void keep(std::shared_ptr<void> blocks, std::function<bool()> is_over) {
    std::lock_guard lock(mutex_);
    held_.push_back({std::move(blocks), std::move(is_over)});
  }
  // Frees what was retired or kept and is not needed any more.
  void sweep() {
    std::lock_guard lock(mutex_);
    std::erase_if(held_, [](const Held& old) { return old.is_over(); });
    std::erase_if(retired_, [this](const Retired& old) {
      if (old.left->load() < old.size) return false;
      release(old.block);
      return true;
    });
  }

 protected:
  SharedMemory() = default;

 private:
  struct Retired {
    void* block;
    const std::atomic<uint32_t>* left;
    uint32_t size;
  };
  struct Held {
    std::shared_ptr<void> blocks;
    std::function<bool()> is_over;
  };
  std::mutex mutex_;
  std::vector<Retired> retired_;
  std::vector<Held> held_;
};

}  // namespace cohort::shared_memory
