// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/shared_memory/call.h"

#include "cohort/comm/dtype.h"
#include "cohort/core/error.h"

namespace cohort::shared_memory {
namespace {

const char* op_name(Op op) {
  switch (op) {
    case Op::kNone:
      return "nothing";
    case Op::kAllReduce:
      return "all_reduce";
    case Op::kReduceScatter:
      return "reduce_scatter";
    case Op::kAllGather:
      return "all_gather";
    case Op::kBroadcast:
      return "broadcast";
    case Op::kAllToAll:
      return "all_to_all";
    case Op::kBarrier:
      return "barrier";
    case Op::kSplit:
      return "split";
    case Op::kMapPeers:
      return "map_peers";
    case Op::kJointWork:
      return "joint work";
    case Op::kTransfer:
      return "exchange";
  }
  return "?";
}

// A peer's fingerprint may hold a dtype that no communicator carries.
const char* name_of(at::ScalarType dtype) {
  const char* name = dtype_name(dtype);
  return name ? name : c10::toString(dtype);
}

const char* reduce_name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMean:
      return "mean";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
  }
  return "?";
}

}  // namespace

Fingerprint Call::print() const {
  const bool reduces = op == Op::kAllReduce || op == Op::kReduceScatter;
  return {static_cast<uint64_t>(op) | static_cast<uint64_t>(dtype) << 8 |
              static_cast<uint64_t>(reduces ? reduce : ReduceOp::kSum) << 16 |
              static_cast<uint64_t>(root + 1) << 32,
          static_cast<uint64_t>(numel)};
}

std::string describe(const Fingerprint& print) {
  const Op op = static_cast<Op>(print.what & 0xff);
  const auto dtype = static_cast<at::ScalarType>(print.what >> 8 & 0xff);
  const auto reduce = static_cast<ReduceOp>(print.what >> 16 & 0xff);
  const std::string name = op_name(op);
  switch (op) {
    case Op::kNone:
    case Op::kBarrier:
    case Op::kSplit:
      return name;
    case Op::kAllToAll:
      return text(name, "(", name_of(dtype), ")");
    case Op::kAllReduce:
    case Op::kReduceScatter:
      return text(name, "(", name_of(dtype), ", ", print.numel, ", ",
                  reduce_name(reduce), ")");
    case Op::kBroadcast:
      return text(name, "(", name_of(dtype), ", ", print.numel, ", root ",
                  static_cast<int64_t>(print.what >> 32) - 1, ")");
    default:
      return text(name, "(", name_of(dtype), ", ", print.numel, ")");
  }
}

}  // namespace cohort::shared_memory
