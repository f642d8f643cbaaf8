// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/device/reduce_parts.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

namespace cohort::device_comm {
namespace {

// What is added in a narrow type is rounded each time.
Tensor place_of_sum(const Tensor& out) {
  if (!is_narrow(out.scalar_type())) return out;
  return at::empty(out.sizes(), out.options().dtype(at::kFloat));
}

// Puts f(first, second) into `out`, then f of that and each of the others.
template <typename Fold>
void fold_parts(Tensor out, const std::vector<Tensor>& parts, const Fold& fold) {
  size_t next = 1;
  if (parts.size() > 1 && out.scalar_type() == parts[0].scalar_type())
    fold(out, parts[0], parts[next++]);
  else
    out.copy_(parts[0]);
  for (; next < parts.size(); ++next) fold(out, out, parts[next]);
}

void add(Tensor& out, const Tensor& a, const Tensor& b) { at::add_out(out, a, b); }
void larger(Tensor& out, const Tensor& a, const Tensor& b) {
  at::maximum_out(out, a, b);  // a NaN wins
}
void smaller(Tensor& out, const Tensor& a, const Tensor& b) {
  at::minimum_out(out, a, b);
}

}  // namespace

bool is_narrow(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16;
}

void reduce_parts(const Tensor& out, const std::vector<Tensor>& parts, ReduceOp op) {
  const at::AutoDispatchBelowADInplaceOrView unrecorded;
  if (op == ReduceOp::kMax) return fold_parts(out, parts, larger);
  if (op == ReduceOp::kMin) return fold_parts(out, parts, smaller);
  const Tensor sum = place_of_sum(out);
  fold_parts(sum, parts, add);
  if (op == ReduceOp::kMean) sum.div_(static_cast<int64_t>(parts.size()));
  if (!sum.is_same(out)) out.copy_(sum);
}

}  // namespace cohort::device_comm
