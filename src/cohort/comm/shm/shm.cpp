// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/shm/shm.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <numeric>
#include <tuple>

#include "cohort/comm/shared_memory/shared_memory_communicator.h"
#include "cohort/comm/shm/heap.h"
#include "cohort/core/error.h"
#include "cohort/core/record.h"

namespace cohort {
namespace {

using shared_memory::Address;

// What a rank tells its peers through the store.
struct Invitation {
  int pid = 0;
  int fd = -1;
  size_t bytes = 0;
  shm::HeapHeader header{};
  Address control = 0;  // rank 0's
  shared_memory::Cores cores;
};
auto record_fields(Alike<Invitation> auto& it) {
  return std::tie(it.pid, it.fd, it.bytes, it.header.cookie, it.control, it.cores.bits);
}

// A peer's process and its heap, seen from here.
struct Peer {
  int pid = 0;
  shm::Descriptor process;  // a pidfd; none for a thread of this process
  shm::Descriptor file;
  shm::Mapping heap;
};

// Each rank has a heap, which all map. An Address is the rank + 1 above 48 bits of
// offset.
class ShmMemory final : public shared_memory::SharedMemory {
 public:
  ShmMemory(int rank, int size, size_t bytes)
      : rank_(rank), heap_(bytes), peers_(size) {}

  std::string name() const override { return "shm"; }
  void* allocate(size_t bytes) override { return heap_.allocate(bytes); }
  void release(void* block) override { heap_.release(block); }

  size_t allocated_bytes() const override { return heap_.allocated_bytes(); }
  bool owns_what_peers_see() const override { return true; }

  Address address_of(const void* data, size_t bytes) const override {
    for (int i = 0; i < static_cast<int>(peers_.size()); ++i) {
      const int r = (rank_ + i) % static_cast<int>(peers_.size());
      const auto& heap = mapping(r);
      if (!heap.holds(data, bytes)) continue;
      const auto offset = static_cast<const std::byte*>(data) - heap.data();
      return static_cast<Address>(r + 1) << kOffsetBits | static_cast<Address>(offset);
    }
    return 0;
  }
  void* at(Address address) const override {
    return mapping(rank_of(address)).data() + offset_of(address);
  }

  size_t join_alignment() const override {
    return static_cast<size_t>(sysconf(_SC_PAGESIZE));
  }
  std::shared_ptr<void> join(std::span<const Address> addresses,
                             size_t bytes) const override {
    const auto joined = std::make_shared<shm::JoinedMapping>(addresses.size() * bytes);
    for (size_t i = 0; i < addresses.size(); ++i) {
      const int rank = rank_of(addresses[i]);
      joined->put(i * bytes, rank == rank_ ? heap_.fd() : peers_[rank].file.get(),
                  offset_of(addresses[i]), bytes);
    }
    return {joined, joined->data()};
  }

  int pid_of(int rank) const override { return peers_[rank].pid; }
  bool is_gone(int rank) const override {
    const Peer& peer = peers_[rank];
    if (rank == rank_ || peer.pid == getpid()) return false;
    if (peer.process.get() < 0) return kill(peer.pid, 0) != 0 && errno == ESRCH;
    pollfd ended{.fd = peer.process.get(), .events = POLLIN, .revents = 0};
    return poll(&ended, 1, 0) == 1;
  }

  Invitation invite(Address control) const {
    return {.pid = getpid(),
            .fd = heap_.fd(),
            .bytes = heap_.mapping().bytes(),
            .header = heap_.header(),
            .control = control,
            .cores = shared_memory::available_cores()};
  }
  void open(int rank, const Invitation& invitation);

 private:
  static constexpr int kOffsetBits = 48;
  static int rank_of(Address address) {
    return static_cast<int>(address >> kOffsetBits) - 1;
  }
  static size_t offset_of(Address address) {
    return address & ((Address{1} << kOffsetBits) - 1);
  }
  const shm::Mapping& mapping(int rank) const {
    return rank == rank_ ? heap_.mapping() : peers_[rank].heap;
  }

  int rank_;
  shm::Heap heap_;
  std::vector<Peer> peers_;
};

// The process is held first and the memory checked after, so both are one rank's.
void ShmMemory::open(int rank, const Invitation& invitation) {
  Peer& peer = peers_[rank];
  peer.pid = invitation.pid;
  if (rank == rank_) return;
  const auto refuse = [&](const std::string& why) {
    throw CommError(text("[comm.shm] rank ", rank, " (pid ", invitation.pid,
                         "): its memory cannot be opened: ", why,
                         "; shm needs ranks of one user on one node"));
  };
  if (invitation.pid != getpid()) {
    peer.process =
        shm::Descriptor(static_cast<int>(syscall(SYS_pidfd_open, invitation.pid, 0)));
  }
  const std::string path = text("/proc/", invitation.pid, "/fd/", invitation.fd);
  shm::Descriptor fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (fd.get() < 0) refuse(text(path, ": ", std::strerror(errno)));
  // Another file of that number may be shorter: reading past its end is a SIGBUS.
  if (lseek(fd.get(), 0, SEEK_END) != static_cast<off_t>(invitation.bytes)) {
    refuse(text(path, " is another file"));
  }
  peer.heap = shm::Mapping(fd.get(), invitation.bytes);
  if (std::memcmp(peer.heap.data(), &invitation.header, sizeof(shm::HeapHeader)) != 0) {
    refuse(text(path, " is another file"));
  }
  peer.file = std::move(fd);
}

// A sanitizer leaves little address space to the program.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr size_t kAddressSpace = size_t{1} << 30;
#else
constexpr size_t kAddressSpace = size_t{16} << 40;
#endif

// Sparse, so as large as the machine; but a process maps the heaps of all ranks.
// Less where it may not have so much (RLIMIT_AS).
size_t heap_bytes(int size) {
  constexpr size_t kLeast = size_t{64} << 20;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t physical = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * page;
  size_t bytes = std::min(physical, kAddressSpace / size / page * page);
  while (bytes > kLeast) {
    void* room = mmap(nullptr, bytes * size, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room != MAP_FAILED) {
      munmap(room, bytes * size);
      break;
    }
    bytes = bytes / 2 / page * page;
  }
  return bytes;
}

void check_world(const World& world) {
  if (world.num_nodes > 1 || world.local_size < world.size) {
    throw ConfigError(text("[comm.shm] the world has ", world.num_nodes,
                           " nodes; shm is for one: use gloo"));
  }
  if (world.size > shared_memory::kMaxRanks) {
    throw ConfigError(text("[comm.shm] ", world.size, " ranks; legal: 1 to ",
                           shared_memory::kMaxRanks));
  }
}

std::string key_of(const World& world, int rank) {
  return text("shm/", world.generation, "/", rank);
}

}  // namespace

std::unique_ptr<Communicator> make_shm(const World& world, Store& store,
                                       const ConnectOptions& options) {
  check_world(world);
  auto memory =
      std::make_shared<ShmMemory>(world.rank, world.size, heap_bytes(world.size));
  const size_t control_bytes = shared_memory::ControlLayout(world.size).bytes();
  Address control = 0;
  if (world.rank == 0) {
    control = memory->address_of(memory->allocate(control_bytes), control_bytes);
  }
  const Invitation own = memory->invite(control);
  if (world.size > 1) store.set(key_of(world, world.rank), to_record(own));
  shared_memory::Cores cores;
  for (int rank = 0; rank < world.size; ++rank) {
    const auto invitation =
        rank == world.rank
            ? own
            : read_record<Invitation>(
                  store.get(key_of(world, rank), options.join_timeout),
                  ErrorKind::kComm,
                  text("[comm.shm] rank ", rank, " published no invitation"));
    memory->open(rank, invitation);
    cores.add(invitation.cores);
    if (rank == 0) control = invitation.control;
  }
  std::vector<int> ranks(world.size);
  std::iota(ranks.begin(), ranks.end(), 0);
  auto group = std::make_shared<shared_memory::SharedGroup>(
      shared_memory::GroupSpec{.memory = memory,
                               .control = static_cast<std::byte*>(memory->at(control)),
                               .owns_control = world.rank == 0,
                               .rank = world.rank,
                               .generation = world.generation,
                               .timeout = options.timeout,
                               .world_ranks = std::move(ranks),
                               .world = nullptr,
                               .clock = nullptr,
                               .faults = nullptr});
  group->set_spinning(world.size <= cores.count());
  auto comm =
      std::make_unique<shared_memory::SharedMemoryCommunicator>(std::move(group));
  // No rank may leave while another has yet to open its memory.
  comm->barrier().wait();
  return comm;
}

}  // namespace cohort
