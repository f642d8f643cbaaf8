// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "cohort/tensor.h"

// Collectives inside blocks: a block declares them (BlockCall), so that a step can be
// checked, drawn and foretold with them, and makes them by its Context (BlockCalls).

namespace [[gnu::visibility("default")]] cohort {

// The ways in which ranks share the work, outermost first: neighbours along the last
// one are neighbours in the world. Data-parallel ranks are those along kReplicate and
// kCut; state is cut along kCut; sequences are cut along kContext.
//
// Layers of experts see the ranks along kCut and kContext in another way: neighbours
// along kExpert have different experts, ranks along kExpertCut the same ones. No set
// of axes names both ways.
enum class Axis : uint8_t {
  kPipe,
  kReplicate,
  kCut,
  kContext,
  kTensor,
  kExpertCut,
  kExpert
};
// A set of axes: the ranks that differ along these alone are a group.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) bits_ |= 1u << static_cast<int>(axis);
  }
  constexpr bool has(Axis axis) const { return bits_ >> static_cast<int>(axis) & 1; }
  constexpr AxisSet operator|(AxisSet other) const {
    AxisSet both;
    both.bits_ = bits_ | other.bits_;
    return both;
  }
  constexpr bool meets(AxisSet other) const { return bits_ & other.bits_; }
  constexpr bool operator==(const AxisSet&) const = default;

 private:
  uint8_t bits_ = 0;
};
inline constexpr AxisSet kDataAxes = {Axis::kReplicate, Axis::kCut};
inline constexpr AxisSet kTensorAxis = {Axis::kTensor};

enum class CallOp : uint8_t { kAllReduce, kAllGather, kReduceScatter, kAllToAll };

// A collective that a block makes inside, as it declares it (law 3, docs/design.md).
struct BlockCall {
  enum class When : uint8_t {
    kForward,  // in training; a recompute makes it again
    kBackward,
    kEvaluate,  // a forward of evaluation
  };
  When when = When::kForward;
  AxisSet axes = kDataAxes;  // with the ranks that differ along these alone
  CallOp op = CallOp::kAllReduce;
  at::ScalarType dtype = at::kFloat;  // Undefined: that of the block's weights
  int64_t numel = 0;                  // elements that a rank gives
  int64_t per_sample = 0;             // further elements for each sample of the slice

  at::ScalarType dtype_for(at::ScalarType weights) const {
    return dtype == at::ScalarType::Undefined ? weights : dtype;
  }
  int64_t numel_for(int64_t samples) const { return numel + per_sample * samples; }
  std::string text(int64_t samples) const;  // "AllReduce of 18 Double over dp"
  bool operator==(const BlockCall&) const = default;
};

std::string_view name_of(BlockCall::When when);

// Makes the collectives that a block declares. The block calls them by its Context, in
// the order declared, in forward and in the backward of its autograd functions; so does
// every rank of a group, also of one that has no other. A call returns with its result.
// Failure: CommError as of a Communicator; BugError where the calls are not those that
// were declared. Thread safety: one thread at a time. Lives as long as what a forward
// leaves for its backward.
class BlockCalls {
 public:
  virtual ~BlockCalls() = default;
  BlockCalls(const BlockCalls&) = delete;
  BlockCalls& operator=(const BlockCalls&) = delete;

  virtual int size(AxisSet axes) const = 0;

  // As of a Communicator; reductions are sums.
  virtual void all_reduce(AxisSet axes, Tensor& tensor) = 0;
  virtual void all_gather(AxisSet axes, Tensor& out, const Tensor& shard) = 0;
  virtual void reduce_scatter(AxisSet axes, Tensor& out, const Tensor& in) = 0;

 protected:
  BlockCalls() = default;
};

}  // namespace cohort
