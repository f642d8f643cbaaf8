// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/comm/node/call.h"
#include "cohort/comm/node/control.h"
#include "cohort/comm/node/group_spec.h"
#include "cohort/comm/node/pause.h"

namespace cohort::node {

// The engine of a group whose ranks share memory.
//
// There is no thread of its own: a call posts its arrival and returns, and all
// work is done inside later calls, wait() and poll(). Once all ranks have arrived
// at the oldest collective, each does its share of it by one of three paths:
//   inline  small data ride behind the arrival, and every rank reads all of them;
//   direct  all data lie in shared memory, and ranks work on each other's tensors;
//   staged  data pass through buffers that stay in cache, in rounds.
// The arrivals tell every rank the same, so all choose the same path.
//
// Failure: a rank that sees a mismatch, a timeout or a dead peer breaks the group
// for all and throws CommError, from then on from every call.
//
// Thread safety: none, but for abort().
class Group : public std::enable_shared_from_this<Group> {
 public:
  static constexpr int kDone = -1;

  explicit Group(GroupSpec spec);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int generation() const { return spec_.generation; }
  Memory& memory() const { return *spec_.memory; }
  const GroupSpec& spec() const { return spec_; }
  std::string prefix() const { return "[comm." + spec_.memory->name() + "] "; }

  // An empty call to fill in, then post(). Waits when too many are in flight.
  Call& next_call();
  // Returns the sequence number to wait for.
  uint64_t post(Call& call);
  void wait(uint64_t sequence);
  bool poll(uint64_t sequence);
  // Where the data of each rank's call lie; valid until the next call.
  std::span<const Place> places() const { return places_; }

  // Starts transfers, those sent first; returns a number to wait for.
  uint64_t exchange(std::span<const Transfer> sends,
                    std::span<const Transfer> receives);
  void wait_exchange(uint64_t id);
  bool poll_exchange(uint64_t id);

  void abort(std::string_view reason);

  // Says on which cores this rank may run; ranks spin only where there is one core
  // a rank. Set once all ranks of the world are known.
  void set_spinning(bool spins) { spins_ = spins; }
  bool spins() const { return spins_; }

 private:
  // Something to wait for: attempt() moves on without blocking and returns kDone,
  // or a rank that must act first; missing() names all such ranks.
  struct Goal {
    virtual int attempt() = 0;
    virtual std::vector<int> missing() = 0;
    virtual std::string what() = 0;
  };
  struct CollectiveGoal;
  struct SlotGoal;
  struct ExchangeGoal;

  // One side of one transfer between this rank and `peer`.
  struct Pending {
    uint64_t exchange;
    bool sends;
    int peer;
    uint64_t ordinal;  // in its channel
    Tensor tensor;     // contiguous
    Tensor copy_to;
    std::byte* data;
    int64_t bytes;
    int64_t moved = 0;
    Fingerprint print;
    bool posted = false;
    bool agreed = false;
    bool finished = false;
  };

  // group.cpp: order of collectives
  int progress();
  int step(Call& call);
  int check_arrivals(Call& call);
  void choose_path(Call& call);
  void complete(Call& call);
  std::vector<int> missing_ranks();
  [[noreturn]] void refuse(int peer, const Fingerprint& theirs, const Call& mine);
  void check_counts(const Call& call);

  // paths.cpp: inline and direct
  void write_payload(const Call& call, Slot& slot);
  void run_inline(Call& call);
  void run_direct(Call& call);
  std::string work_on_peers(Call& call);
  void read_source(const Call& call, int from, const std::byte* data);
  const int64_t* counts_of(int rank, uint64_t sequence) const;

  // staged.cpp
  int step_staged(Call& call);
  int64_t count_rounds(const Call& call);
  void fill(const Call& call, int64_t round);
  void take(const Call& call, int64_t round);
  void take_reduced(const Call& call, int64_t round);
  void copy_reduced(const Call& call, int64_t round);

  // exchange.cpp
  void step_exchanges();
  bool step_transfer(Pending& transfer);
  bool agree(Pending& transfer, Channel::Side& mine, Channel::Side& theirs);
  void move_data(Pending& transfer, Channel& channel);
  void copy_shared(void* to, const void* from, int64_t bytes);
  void send_chunks(Pending& transfer, Channel& channel);
  void receive_chunks(Pending& transfer, Channel& channel);
  Place channel_buffer(int peer);

  // block.cpp: waiting and failing
  void block(Goal& goal);
  bool poll_goal(Goal& goal);
  bool spin(Goal& goal);
  void nap(Goal& goal, int missing);
  void check_broken();
  bool is_aborted() const {
    return control_->abort.load() == Control::kAborted ||
           world_control_->abort.load() == Control::kAborted;
  }
  void check_abort();
  void check_peers(Goal& goal, Nanoseconds since);
  bool check_lost(Goal& goal, int peer);
  bool break_group(std::string_view reason);
  void quiesce();
  [[noreturn]] void fail(const std::string& what);
  std::string last_words(int peer);
  void ring() {
    if (mine_->sleepers.load() != 0) ring_bell(*mine_);
  }
  static void ring_bell(Status& status);
  void touch();
  int first_behind(std::atomic<uint64_t> Status::*counter, uint64_t value);

  Status& status(int rank) const { return layout_.status(spec_.control, rank); }
  Slot& slot(int rank, uint64_t sequence) const {
    return layout_.slot(spec_.control, rank, sequence);
  }

  GroupSpec spec_;
  const int rank_;
  const int size_;
  const Layout layout_;
  Control* control_;
  Control* world_control_;
  Status* mine_;
  std::vector<Status*> progress_of_;  // where each rank stamps its progress
  bool spins_ = false;
  std::string broken_;  // why, once it is

  std::array<Call, kSlots> calls_;
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
  std::vector<uint8_t> seen_;  // ranks that have arrived at the oldest collective
  std::vector<Place> places_;
  std::vector<uint64_t> peers_completed_;  // as far as known
  uint64_t round_base_ = 0;                // rounds of staging before the oldest
  std::vector<const std::byte*> inputs_;
  std::vector<std::byte*> outputs_;

  std::deque<Pending> transfers_;
  uint64_t exchanges_ = 0;
  std::vector<uint64_t> sent_, received_;  // ordinals by peer
  std::vector<void*> buffers_;             // of channels, by peer

  Nanoseconds polled_since_{};  // when a poll() first found the oldest blocked
  uint64_t polled_at_ = ~uint64_t{0};
  Nanoseconds next_check_{};
};

}  // namespace cohort::node
