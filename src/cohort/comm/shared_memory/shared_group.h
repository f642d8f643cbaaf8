// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cohort/comm/shared_memory/announcement.h"
#include "cohort/comm/shared_memory/call.h"
#include "cohort/comm/shared_memory/control_block.h"
#include "cohort/comm/shared_memory/goal.h"
#include "cohort/comm/shared_memory/group_spec.h"
#include "cohort/comm/shared_memory/pause.h"
#include "cohort/comm/shared_memory/pending_transfers.h"

namespace cohort::shared_memory {

// The engine of a group whose ranks share memory: arrivals, which are its barrier, and
// what ranks do behind them.
//
// There is no thread of its own: a call posts its arrival and returns, and all work is
// done inside later calls, wait() and poll(), of this group or of a sibling that the
// same thread uses. Once all ranks have arrived at the oldest collective, each does its
// share of it by one of three paths: inline or direct (paths.cpp), or staged
// (staged.cpp). The arrivals tell every rank the same, so all choose the same.
//
// Failure: a rank that sees a mismatch, a timeout or a dead peer breaks the group
// for all and throws CommError, from then on from every call.
//
// Thread safety: one thread at a time, but for abort() and owner().
class SharedGroup : public std::enable_shared_from_this<SharedGroup> {
 public:
  static constexpr int kDone = -1;
  // How often a rank that waits looks for dead peers and deadlines.
  static constexpr Nanoseconds kCheckEvery = std::chrono::milliseconds(50);

  explicit SharedGroup(GroupSpec spec);
  ~SharedGroup();
  SharedGroup(const SharedGroup&) = delete;
  SharedGroup& operator=(const SharedGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int generation() const { return spec_.generation; }
  SharedMemory& memory() const { return *spec_.memory; }
  const GroupSpec& spec() const { return spec_; }
  std::string prefix() const { return "[comm." + spec_.memory->name() + "] "; }

  // An empty call to fill in, then post(). Waits when too many are in flight.
  Call& next_call();
  // Returns the sequence number to wait for.
  uint64_t post(Call& call);
  void wait(uint64_t sequence);
  bool poll(uint64_t sequence);
  // Where the data of each rank's call lie; valid until the next call.
  std::span<const Address> addresses() const { return addresses_; }

  // Starts transfers, those sent first; returns a number to wait for.
  uint64_t exchange(std::span<const Transfer> sends,
                    std::span<const Transfer> receives);
  void wait_exchange(uint64_t id);
  bool poll_exchange(uint64_t id);

  void abort(std::string_view reason);
  // Throws CommError if the group is broken.
  void check_usable();

  Siblings& siblings() { return *spec_.siblings; }
  // The thread that used it last.
  std::thread::id owner() const { return owner_.load(std::memory_order_relaxed); }
  // Peers can reach the memory of `tensor` from now on, in joint work.
  void show(const Tensor& tensor);

  // Ranks spin only where each has a core. Set once all of the world are known.
  void set_spinning(bool spins) { spins_ = spins; }

 private:
  struct CollectiveGoal;
  struct SlotGoal;
  struct ExchangeGoal;

  // shared_group.cpp: order of collectives
  int progress();
  int move(Call& call);
  void choose_path(Call& call);
  void complete(Call& call);
  std::vector<int> missing_ranks();
  void check_counts(const Call& call);

  // barrier.cpp
  int check_arrivals(Call& call);
  [[noreturn]] void refuse(int peer, const Fingerprint& theirs, const Call& mine);

  // paths.cpp: inline and direct
  void write_payload(const Call& call, Slot& slot);
  void run_inline(Call& call);
  void run_direct(Call& call);
  std::string work_on_peers(Call& call);
  void read_source(const Call& call, int from, const std::byte* data);
  const int64_t* counts_of(int rank, uint64_t sequence) const;

  // staged.cpp
  int move_staged(Call& call);
  int64_t count_rounds(const Call& call);
  void fill(const Call& call, int64_t round);
  void take(const Call& call, int64_t round);
  void take_reduced(const Call& call, int64_t round);
  void copy_reduced(const Call& call, int64_t round);

  // exchange.cpp
  void move_exchanges();
  bool move_transfer(Pending& transfer);
  bool agree(Pending& transfer, PairChannel::Side& mine, PairChannel::Side& theirs);
  void move_data(Pending& transfer, PairChannel& channel);
  void copy_shared(void* to, const void* from, int64_t bytes);
  void send_chunks(Pending& transfer, PairChannel& channel);
  void receive_chunks(Pending& transfer, PairChannel& channel);
  Address channel_buffer(int peer);

  // waiting.cpp
  void claim() { spec_.siblings->claim(owner_); }
  void settle();
  void wait_for(Goal& goal);
  bool poll_goal(Goal& goal);
  bool spin(Goal& goal);
  void nap(Goal& goal, int missing);
  bool move_siblings();
  void move_on() noexcept;
  bool list_awaited(int missing, std::vector<Awaited>& list);
  void add_awaited(std::vector<Awaited>& list);
  void ring() {
    for (int word = 0; 64 * word < size_; ++word)
      if (mine_->sleepers[word].load() != 0) [[unlikely]]
        wake_sleepers(word);
  }
  void wake_sleepers(int word);
  void touch();

  // lost_peers.cpp
  void check_peers(Goal& goal, Nanoseconds since);
  bool check_lost(Goal& goal, int peer);
  std::string last_words(int peer);

  // breakage.cpp: failing
  void check_broken();
  bool is_aborted() const;
  void check_abort();
  bool break_group(std::string_view reason);
  [[noreturn]] void fail(const std::string& what);
  void quiesce();
  bool is_touching(int peer);
  void keep_memory();
  int first_behind(std::atomic<uint64_t> Status::*counter, uint64_t value);

  Status& status(int rank) const { return layout_.status(spec_.control, rank); }
  Slot& slot(int rank, uint64_t sequence) const {
    return layout_.slot(spec_.control, rank, sequence);
  }

  GroupSpec spec_;
  const int rank_;
  const int size_;
  const ControlLayout layout_;
  Control* control_;
  Control* world_control_;
  Status* mine_;
  std::vector<Status*> progress_of_;  // where each rank stamps its progress
  bool spins_ = false;
  std::string broken_;  // why, once it is
  std::atomic<std::thread::id> owner_{};
  bool counted_ = false;  // by its siblings: it has something outstanding

  std::array<Call, kSlots> calls_;
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
  std::vector<uint8_t> seen_;  // ranks that have arrived at the oldest collective
  std::vector<Address> addresses_;
  std::vector<uint64_t> peers_completed_;  // as far as known
  uint64_t round_base_ = 0;                // rounds of staging before the oldest
  int blocked_on_ = kDone;                 // the rank the oldest was last found to need
  std::vector<const std::byte*> inputs_;
  std::vector<std::byte*> outputs_;

  PendingTransfers transfers_;
  // What peers may reach in joint work, as long as its owner has it.
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> shown_;

  struct {
    Nanoseconds since{};  // when a poll() first found the oldest blocked
    uint64_t at = ~uint64_t{0};
    Nanoseconds next_check{};
  } polled_;
};

}  // namespace cohort::shared_memory
