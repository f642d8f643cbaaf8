// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "cohort/comm/work.h"
#include "cohort/core/tensor.h"

namespace cohort {

// Called with a stretch [begin, begin + count) of elements of this rank's share,
// counted from the start of the tensor, and the sum over all ranks of those elements,
// hot in cache. The sum is in `sum[0..count)`, which the callee may overwrite.
using ShareVisitor = std::function<void(int64_t begin, int64_t count, float* sum)>;

// The share of a tensor of `numel` elements that rank `rank` of `size` reduces: a
// contiguous range cut at multiples of 1,024 elements.
struct ShareRange {
  int64_t begin;
  int64_t end;
};

inline ShareRange share_of(int64_t numel, int rank, int size) {
  constexpr int64_t kUnit = 1024;
  const int64_t units = (numel + kUnit - 1) / kUnit;
  const auto cut = [&](int64_t r) { return std::min(numel, units * r / size * kUnit); };
  return {cut(rank), cut(rank + 1)};
}

// An optional ability of a Communicator: its ranks can touch each other's
// `allocate()`d memory directly. Ask with dynamic_cast<PeerMemory*>.
//
// With it a reduction and what follows it (an optimizer's update, written into
// every rank's copy) are one pass over memory instead of three.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;

  // Collective, blocking. Every rank passes an `allocate()`d contiguous tensor of
  // one size; returns the views of all of them, by rank. They stay valid while the
  // communicator lives.
  virtual std::vector<Tensor> map_peers(const Tensor& mine) = 0;

  // Collective. Sums `tensor` (float32, contiguous, `allocate()`d) over the ranks:
  // each rank sums its own share_of() it and hands it to `visit` stretch by stretch.
  // The contents of `tensor` are undefined afterwards. wait() returns when every rank
  // has visited its share, so that what they wrote into each other's memory is
  // complete.
  virtual Work reduce_shares(Tensor& tensor, ShareVisitor visit) = 0;

 protected:
  PeerMemory() = default;
};

}  // namespace cohort
