// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cohort/communicator.h"
#include "cohort/tensor.h"
#include "cohort/work.h"

namespace cohort {

// The shard of a tensor of `numel` elements that rank `rank` of `size` reduces: a
// contiguous range cut at multiples of 1,024 elements.
struct ShardRange {
  int64_t begin;
  int64_t end;
};

inline ShardRange shard_range(int64_t numel, int rank, int size) {
  constexpr int64_t kUnit = 1024;
  const int64_t units = (numel + kUnit - 1) / kUnit;
  const auto cut = [&](int64_t r) { return std::min(numel, units * r / size * kUnit); };
  return {cut(rank), cut(rank + 1)};
}

// An optional ability of a Communicator: its ranks can touch each other's
// `allocate()`d memory directly. Ask with dynamic_cast<PeerMemory*>.
//
// With it a reduction and what follows it (an optimizer's update, written into
// every rank's copy) are one pass over memory instead of three: each rank does it for
// its shard of the elements.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;

  // Collective, blocking. Every rank passes an `allocate()`d contiguous tensor of
  // one size; returns the views of all of them, by rank. They stay valid while the
  // communicator lives.
  virtual std::vector<Tensor> map_peers(const Tensor& mine) = 0;

  // Collective, blocking. Every rank's part, in the order of ranks, as one tensor: not
  // a copy, but the same memory once more. Each passes an `allocate()`d contiguous
  // tensor of one size, which is a multiple of join_alignment() bytes.
  virtual Tensor join(const Tensor& part) = 0;
  // 0: memory cannot be joined.
  virtual int64_t join_alignment() const = 0;

  // What this rank has allocate()d and holds. Pages of its peers that it has touched
  // count as its own in the system's figures.
  virtual int64_t allocated_bytes() const = 0;

  // Collective. When every rank has called it, each runs its own `work` once, inside
  // wait(), poll() or a later call, of this group or of one that moves it (see
  // Communicator); wait() returns when all are done. Meanwhile ranks may read and write
  // each other's mapped memory as they agreed to. `work` calls nothing of a
  // communicator but abort(). `what` is compared between the ranks: the number of
  // elements they work on, for one.
  virtual Work work_jointly(int64_t what, std::function<void()> work) = 0;

  // While what it returns lives, this rank begins no joint work, in any group
  // of the world: a rank that waits in the middle of something else moves bytes alone.
  // Its peers wait for it meanwhile.
  [[nodiscard]] virtual std::shared_ptr<void> hold_joint_work() = 0;

 protected:
  PeerMemory() = default;
};

// A communicator may have no such memory.
inline bool shares_memory(const Communicator& comm) {
  return dynamic_cast<const PeerMemory*>(&comm) != nullptr;
}

inline int64_t join_alignment(const Communicator& comm) {
  const auto* const peers = dynamic_cast<const PeerMemory*>(&comm);
  return peers ? peers->join_alignment() : 0;
}

}  // namespace cohort
