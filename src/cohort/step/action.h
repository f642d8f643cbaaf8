// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cohort/block_call.h"
#include "cohort/step/value.h"

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
  kMirror,
  kAllToAll,
  kBroadcast,
  kSend,
  kRecv,
  kNorm,
  kVote,
  kUpdate,
  kFoldBuffers,
  kCommit,
  kSnapshot,
  kLoad,
  kBackwardInput,  // the input's gradient; kBackwardWeight follows, kBackward is both
  kReduceUpdate,   // one pass over memory that ranks share: sums, updates, and writes
                   // new parameters everywhere
};
inline constexpr int kActionKinds = 22;

std::string_view name_of(ActionKind kind);

// Whether it leaves each rank the sum of its shard of a bucket, or uses it.
constexpr bool sums_shards(ActionKind kind) {
  return kind == ActionKind::kReduceScatter || kind == ActionKind::kReduceUpdate;
}

inline constexpr int kComputeLane = 0;

// A collective inside a block, where it computes.
struct InnerCall {
  static constexpr int kOps = 4;
  int group = kNone;
  CallOp op = CallOp::kAllReduce;
  int64_t bytes = 0;

  bool operator==(const InnerCall&) const = default;
};

std::string_view name_of(CallOp op);

// All of a block's backward, or one of its two parts.
constexpr bool is_backward(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kBackwardInput ||
         kind == ActionKind::kBackwardWeight;
}

// The pair (loss sum, count) is reduced like a bucket; this is its number.
inline constexpr int kLossBucket = -1;

// An action begins when its lane has finished the one before it and everything it
// waits for is done.
struct Action {
  ActionKind kind;
  int lane = kComputeLane;
  int block = kNone;
  int slice = kNone;  // counted within the rank
  // Whose parameters it uses, or what it moves; of Commit: all that the step updates.
  std::vector<int> buckets;
  int64_t bytes = 0;    // moved, for communication and copies; weights of Update
  int64_t scratch = 0;  // bytes needed only while it runs: measured, or estimated
  // What a step must have done before its Commit, beyond the updates: Norm, Vote,
  // FoldBuffers, Mirror.
  std::vector<ActionKind> needs;
  std::vector<InnerCall> calls;  // in their order
  // Transfers with one number are one exchange: they begin together.
  int batch = kNone;
  // Generators declare them; what it waits for follows (derive.h).
  std::vector<Access> reads, writes;
  std::vector<int> waits;  // earlier actions of this list, by index
  // Actions of the step before, by index, where a step need not wait for all of them.
  std::vector<int> waits_before;
};

}  // namespace cohort
