// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/nccl/reduction.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>

#include <limits>

#include "cohort/comm/device/reduce_parts.h"
#include "cohort/comm/staging.h"

namespace cohort::nccl_backend {
namespace {

using device_comm::is_narrow;

bool is_extreme(ReduceOp op) { return op == ReduceOp::kMax || op == ReduceOp::kMin; }

template <typename Integer>
int64_t nan_key_for(ReduceOp op) {
  using Limits = std::numeric_limits<Integer>;
  return op == ReduceOp::kMax ? Limits::max() : Limits::min();
}

// Turns the bits of floating values into integers of their order, and those back: all
// bits but the sign of negative ones are inverted.
Tensor turned(const Tensor& bits) {
  const int64_t magnitude = bits.scalar_type() == at::kLong
                                ? std::numeric_limits<int64_t>::max()
                                : std::numeric_limits<int32_t>::max();
  return at::where(bits.lt(0), bits.bitwise_xor(magnitude), bits);
}

// The extremes themselves are the keys of NaNs: turned back they are NaNs again.
Tensor keys_of(const Tensor& values, ReduceOp op) {
  const bool wide = values.scalar_type() == at::kDouble;
  const int64_t nan = wide ? nan_key_for<int64_t>(op) : nan_key_for<int32_t>(op);
  const Tensor keys = turned(values.view(wide ? at::kLong : at::kInt));
  return keys.masked_fill(values.isnan(), nan);
}

}  // namespace

bool sums_by_parts(at::ScalarType dtype, ReduceOp op, int size) {
  if (!is_narrow(dtype)) return false;
  // Two are added, and rounded, once.
  return op == ReduceOp::kMean || (op == ReduceOp::kSum && size > 2);
}

Tensor prepared(const Tensor& tensor, ReduceOp op) {
  const at::AutoDispatchBelowADInplaceOrView unrecorded;
  const Tensor values = contiguous_copy(tensor).detach();
  if (!is_extreme(op) || !at::isFloatingType(values.scalar_type())) return values;
  return keys_of(is_narrow(values.scalar_type()) ? values.to(at::kFloat) : values, op);
}

RedOp reduction_of(ReduceOp op) {
  if (op == ReduceOp::kMax) return kMax;
  return op == ReduceOp::kMin ? kMin : kSum;
}

Tensor restored(const Tensor& reduced, at::ScalarType dtype, ReduceOp op, int size) {
  const at::AutoDispatchBelowADInplaceOrView unrecorded;
  if (op == ReduceOp::kMean) reduced.div_(size);
  if (!is_extreme(op) || !at::isFloatingType(dtype)) return reduced;
  const bool wide = reduced.scalar_type() == at::kLong;
  return turned(reduced).view(wide ? at::kDouble : at::kFloat).to(dtype);
}

Tensor sum_of_parts(const Tensor& parts, ReduceOp op) {
  const at::AutoDispatchBelowADInplaceOrView unrecorded;
  const Tensor sum = at::empty({parts.size(1)}, parts.options());
  device_comm::reduce_parts(sum, parts.unbind(), op);
  return sum;
}

}  // namespace cohort::nccl_backend
