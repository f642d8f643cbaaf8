// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/step/tensor_spec.h"

namespace cohort {

// Every technique of distributed training is an order of these.
enum class ActionKind : uint8_t {
  kForward,
  kBackward,
  kBackwardWeight,
  kRecompute,
  kGather,
  kFree,
  kReduce,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
  kSend,
  kRecv,
  kNorm,
  kVote,
  kUpdate,
  kFoldBuffers,
  kCommit,
  kOffload,
  kFetch,
  kSnapshot,
  kLoad,
};

std::string_view name_of(ActionKind kind);

// Lanes: actions of one lane run one after another, in the order of the list. Lane
// 0 computes; lane 1 + g carries the communication of group g, first in first out.
inline constexpr int kComputeLane = 0;

// The pair (loss sum, count) is reduced like a bucket; this is its number.
inline constexpr int kLossBucket = -1;
inline constexpr int kNone = -2;

struct Action {
  ActionKind kind;
  int lane = kComputeLane;
  int block = kNone;
  int slice = kNone;   // counted within the rank
  int bucket = kNone;  // kLossBucket or an index into Schedule::buckets
  int64_t bytes = 0;   // moved, for communication
  std::vector<int> waits;  // earlier actions of this list, by index
};

// Parameters that are reduced and updated together: one stretch of flat memory.
struct Bucket {
  std::vector<int> blocks;  // whose parameters it holds, in order of backward
  int64_t numel = 0;        // with the padding between parameters
  at::ScalarType dtype = at::kFloat;
};

// Ranks with equal lists share a role (law 6).
struct Role {
  std::vector<int> ranks;
  int slices = 1;  // each of these ranks computes a step
  std::vector<Action> actions;
};

// One training step of all ranks, as data. What is checked, run, simulated and
// drawn is this.
struct Schedule {
  int world = 1;
  std::vector<Bucket> buckets;
  std::vector<Role> roles;

  const Role& role_of(int rank) const;
  // One line an action: stable, so that ranks can compare the hash of it.
  std::string text() const;
  uint64_t hash() const;
};

// What a generator must know of a model: no tensor, so it needs no memory.
struct BlockSpec {
  std::string name;
  std::vector<TensorSpec> parameters;
  bool keeps_statistics = false;
};

}  // namespace cohort
