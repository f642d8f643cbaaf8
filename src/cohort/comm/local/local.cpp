// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/local/local.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>

#include "cohort/comm/shared_memory/shared_memory_communicator.h"
#include "cohort/core/error.h"
#include "cohort/core/processor.h"

namespace cohort {
namespace {

// Memory of this process: every pointer means the same to every rank. Pages come from
// the system, zeroed when they are first touched: a group's staging buffers are
// megabytes that a small model never touches.
class LocalMemory final : public shared_memory::SharedMemory {
 public:
  ~LocalMemory() override {
    for (const auto& [block, bytes] : bytes_of_) munmap(block, bytes);
  }

  std::string name() const override { return "local"; }

  void* allocate(size_t bytes) override {
    bytes = std::max<size_t>(bytes, 1);
    void* const block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) {
      throw ConfigError(text("[comm.local] allocate: ", bytes, " bytes are not there"));
    }
    std::lock_guard lock(mutex_);
    bytes_of_[block] = bytes;
    return block;
  }
  void release(void* block) override {
    std::lock_guard lock(mutex_);
    const auto released = bytes_of_.extract(block);
    COHORT_CHECK(!released.empty(), "no block at ", block);
    munmap(block, released.mapped());
  }

  shared_memory::Address address_of(const void* data, size_t) const override {
    return reinterpret_cast<shared_memory::Address>(data);
  }
  void* at(shared_memory::Address address) const override {
    return reinterpret_cast<void*>(address);
  }

  int pid_of(int) const override { return getpid(); }
  bool is_gone(int) const override { return false; }

 private:
  std::mutex mutex_;
  std::map<void*, size_t> bytes_of_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local(int size,
                                                      std::chrono::milliseconds timeout,
                                                      int generation) {
  return make_local(size, {.timeout = timeout, .generation = generation});
}

std::vector<std::unique_ptr<Communicator>> make_local(int size,
                                                      const LocalOptions& options) {
  if (size < 1 || size > shared_memory::kMaxRanks) {
    throw ConfigError(
        text("[comm.local] ", size, " ranks; legal: 1 to ", shared_memory::kMaxRanks));
  }
  settle_vector_math();
  auto memory = std::make_shared<LocalMemory>();
  auto* control = static_cast<std::byte*>(
      memory->allocate(shared_memory::ControlLayout(size).bytes()));
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<std::unique_ptr<Communicator>> comms;
  for (int rank = 0; rank < size; ++rank) {
    auto group = std::make_shared<shared_memory::SharedGroup>(
        shared_memory::GroupSpec{.memory = memory,
                                 .control = control,
                                 .owns_control = rank == 0,
                                 .rank = rank,
                                 .generation = options.generation,
                                 .timeout = options.timeout,
                                 .world_ranks = ranks,
                                 .world = nullptr,
                                 .clock = options.clock,
                                 .faults = options.faults});
    group->set_spinning(size <= shared_memory::available_cores().count());
    comms.push_back(
        std::make_unique<shared_memory::SharedMemoryCommunicator>(std::move(group)));
  }
  return comms;
}

}  // namespace cohort
