// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cohort/comm/peer_memory.h"
#include "cohort/comm/shared_memory/control_block.h"
#include "cohort/communicator.h"

namespace cohort::shared_memory {

enum class Op : uint8_t {
  kNone,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kAllToAll,
  kBarrier,
  kSplit,      // an all_gather of colors, then of addresses
  kMapPeers,   // an all_gather of nothing: the arrival has the address
  kJointWork,  // work between two barriers
  kTransfer,
};

// One collective from its call to its end, on this rank.
struct Call {
  Op op = Op::kNone;
  at::ScalarType dtype = at::kByte;
  ReduceOp reduce = ReduceOp::kSum;
  int root = -1;
  // Elements of what the ranks must agree on: the whole tensor of all_reduce,
  // broadcast and joint work, one rank's part of reduce_scatter and all_gather.
  int64_t numel = 0;

  Tensor in, out;  // contiguous; keep the memory alive
  Tensor copy_to;  // the caller's tensor, where it is not contiguous
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  int64_t source_bytes = 0;
  std::vector<int64_t> sent, received;  // elements to and from each rank: all_to_all
  std::function<void()> work;           // done by all ranks, jointly

  // How far it is.
  enum class Path : uint8_t { kUndecided, kInline, kDirect, kStaged };
  Path path = Path::kUndecided;
  bool worked = false;  // this rank's share of a direct one is done
  int64_t rounds = 0;   // how many a staged one takes
  int64_t filled = 0, taken = 0, copied = 0;

  Fingerprint print() const;
};

// "all_reduce(float32, 1000, sum)"
std::string describe(const Fingerprint& print);

// True for calls that need every rank's tensor in shared memory, however small.
inline bool uses_places(Op op) { return op == Op::kMapPeers; }

}  // namespace cohort::shared_memory
