// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace cohort {

inline constexpr int kNone = -2;

// What the actions of a step pass on to one another.
enum class What : uint8_t {
  kInput,     // a slice's
  kAct,       // the output of a block
  kFlight,    // what its forward keeps for its backward, or a Recompute makes of it
  kActGrad,   // the gradient of its output
  kDeferred,  // what its BackwardInput keeps for its BackwardWeight
  kLeaf,      // the gradient of a bucket, of one slice alone
  kPartial,   // the sum of those of this rank
  kSum,       // over ranks: all of it, or this rank's shard
  kMirrored,  // the sum of the neighbour's shard
  kWhole,     // all parameters of a bucket, to compute with, until a Free
  kState,     // weights and moments, or this rank's shard of them
  kStat,      // running statistics of a block, of one slice
  kFolded,    // those of all blocks, over all slices
  kLoss,      // a slice's; without one, over the batch
  kNorm,
  kVote,
};
inline constexpr int kWhats = 16;

std::string_view name_of(What what);

// One of them: of a block (activations) or a bucket (gradients and parameters), of a
// slice of this rank. An action that changes it in place, or makes it anew, makes its
// next version; there is one at a time.
struct Value {
  What what = What::kInput;
  int of = kNone;
  int slice = kNone;
  int version = 0;

  // This one, whichever version: its first.
  Value any_version() const { return {what, of, slice}; }

  auto operator<=>(const Value&) const = default;
  std::string text() const;  // "Act 3 slice 1", "Partial 0 v2"
};

// What is there when a step begins.
bool is_given(const Value& value);

// What has memory of its own in each step, if no buffer: activations.
constexpr bool is_made_anew(What what) { return what <= What::kDeferred; }

// A value, and the memory that it is read from or written to: a buffer of the schedule,
// or memory of its own.
struct Access {
  Value value;
  int buffer = kNone;
  // Taken by the action that makes it, of its own, until none uses it any more:
  // measured on a device, or estimated.
  int64_t bytes = 0;

  bool operator==(const Access&) const = default;
};

}  // namespace cohort
