// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cohort/comm/shared_memory/shared_memory.h"

namespace cohort::shared_memory {

// What the ranks of a group share. A control block lies in shared memory, zeroed
// at first, and is laid out as
//
//   Control | Status[size] | slots[size][kSlots] | PairChannel[size][size] | staging
//
// A rank writes only what is its own, but for `bell` and `sleepers`. Every flag is
// stored and loaded sequentially consistent: a rank that publishes and then looks
// for sleepers must not miss one that announced itself and then looked again.
//
// A rank may wait for several peers, in several groups: it announces itself at each of
// them, and sleeps on the one bell that it has in the world's block.

inline constexpr uint64_t kSlots = 16;         // collectives in flight
inline constexpr uint64_t kTickets = 8;        // transfers in flight a channel
inline constexpr int64_t kInlineBytes = 8192;  // data that rides in the slot
inline constexpr int kMaxRanks = 256;          // on one node
inline constexpr size_t kLine = 64;
inline constexpr size_t kReasonBytes = 1024;

// Which call a rank has made: all that must agree, in two words.
struct Fingerprint {
  uint64_t what = 0;  // op, dtype, reduction, root: see pack()
  uint64_t numel = 0;
  bool operator==(const Fingerprint&) const = default;
};

struct AtomicFingerprint {
  std::atomic<uint64_t> what;
  std::atomic<uint64_t> numel;

  void store(const Fingerprint& print) {
    what.store(print.what, std::memory_order_relaxed);
    numel.store(print.numel, std::memory_order_relaxed);
  }
  Fingerprint load() const {
    return {what.load(std::memory_order_relaxed),
            numel.load(std::memory_order_relaxed)};
  }
};

// A rank's arrival at one collective; its small data follow the line.
struct alignas(kLine) Slot {
  std::atomic<uint64_t> arrived;  // sequence + 1, written last
  AtomicFingerprint print;
  Address address;     // where its data are; 0 where peers cannot see them
  uint64_t completed;  // how many collectives this rank had finished by then
};

struct Status {
  // Written by the rank itself when it starts or finishes something.
  alignas(kLine) std::atomic<int64_t> stamp;  // time by the group's clock; 0: never yet
  std::atomic<uint64_t> posted;               // collectives started
  std::atomic<uint32_t> left;                 // the group is destroyed on this rank
  std::atomic<uint32_t> busy;                 // touches memory of its peers
  std::atomic<uint32_t> waits_for;            // a rank + 1, while it sleeps
  // How far it is: what peers wait for.
  alignas(kLine) std::atomic<uint64_t> filled;  // rounds of staging written
  std::atomic<uint64_t> taken;                  // rounds of staging read
  std::atomic<uint64_t> done;                   // sequence + 1 of a direct collective
  std::atomic<uint64_t> completed;              // collectives finished
  // What the rank itself sleeps on; of use in the world's block only.
  alignas(kLine) std::atomic<uint32_t> bell;
  // Peers that sleep until this rank publishes something, a bit each.
  std::atomic<uint64_t> sleepers[(kMaxRanks + 63) / 64];
};

struct Ticket {
  AtomicFingerprint print;
  Address address;
};

// One direction of transfers between two ranks.
struct PairChannel {
  struct alignas(kLine) Side {
    std::atomic<uint64_t> posted;    // tickets written
    std::atomic<uint64_t> chunks;    // pieces written, or read, through `buffer`
    std::atomic<uint64_t> finished;  // transfers this side is done with
    std::atomic<Address> buffer;     // two chunks, the sender's
    Ticket tickets[kTickets];
  };
  Side sender;
  Side receiver;
};

struct Control {
  enum Abort : uint32_t { kNone, kWriting, kAborted };
  alignas(kLine) std::atomic<uint32_t> abort;
  int32_t abort_rank;
  char reason[kReasonBytes];
  alignas(kLine) std::atomic<uint32_t> left;  // ranks that have left for good
};

// Finds the parts of a control block for a group of `size` ranks.
class ControlLayout {
 public:
  explicit ControlLayout(int size);

  size_t bytes() const { return staging_ + size_ * staging_stride_; }
  // Bytes of one part of a staging buffer: each rank has two buffers of `size`
  // parts for what it gives away and one for what it has reduced.
  int64_t part_bytes() const { return part_bytes_; }

  static Control& control(std::byte* base) { return *reinterpret_cast<Control*>(base); }
  Status& status(std::byte* base, int rank) const {
    return reinterpret_cast<Status*>(base + status_)[rank];
  }
  Slot& slot(std::byte* base, int rank, uint64_t sequence) const {
    return *reinterpret_cast<Slot*>(base + slots_ + rank * slots_stride_ +
                                    (sequence % kSlots) * slot_stride_);
  }
  static std::byte* payload(Slot& slot) {
    return reinterpret_cast<std::byte*>(&slot) + sizeof(Slot);
  }
  PairChannel& channel(std::byte* base, int from, int to) const {
    return reinterpret_cast<PairChannel*>(base + channels_)[from * size_ + to];
  }
  // Part `part` of buffer `round % 2` of a rank; part `size` is the reduced one.
  std::byte* part(std::byte* base, int rank, uint64_t round, int part) const {
    return base + staging_ + rank * staging_stride_ +
           ((round % 2) * (size_ + 1) + part) * part_bytes_;
  }

 private:
  size_t size_;
  size_t part_bytes_;
  size_t status_, slots_, slots_stride_, slot_stride_, channels_, staging_,
      staging_stride_;
};

}  // namespace cohort::shared_memory
