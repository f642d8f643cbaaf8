// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "cohort/communicator.h"

namespace cohort::test {

inline const std::vector<at::ScalarType> kDtypes = {
    at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kByte};

// The numbers of `period` again and again: copies cost less than computing them all.
inline Tensor repeated(const Tensor& period, int64_t numel) {
  auto out = at::empty({numel}, period.options());
  for (int64_t done = 0; done < numel;) {
    const int64_t more = std::min(done > 0 ? done : period.numel(), numel - done);
    out.narrow(0, done, more).copy_((done > 0 ? out : period).narrow(0, 0, more));
    done += more;
  }
  return out;
}

inline constexpr int64_t kInputPeriod = 11;

// What rank `rank` brings: small whole numbers, exact in every type, also summed.
inline Tensor input(int rank, int64_t numel, at::ScalarType dtype) {
  const auto numbers = at::arange(kInputPeriod, at::kLong);
  return repeated(numbers.mul(3).add(rank * 5).remainder(kInputPeriod).to(dtype),
                  numel);
}

// What the reduction over `size` ranks must give.
inline Tensor reduced(int size, int64_t numel, at::ScalarType dtype, ReduceOp op) {
  std::vector<Tensor> all;
  for (int r = 0; r < size; ++r) all.push_back(input(r, kInputPeriod, at::kDouble));
  const auto stack = at::stack(all);
  switch (op) {
    case ReduceOp::kSum:
      return repeated(stack.sum(0).to(dtype), numel);
    case ReduceOp::kMean:
      return repeated(stack.sum(0).div(size).to(dtype), numel);
    case ReduceOp::kMax:
      return repeated(stack.amax(0).to(dtype), numel);
    case ReduceOp::kMin:
      return repeated(stack.amin(0).to(dtype), numel);
  }
  return {};
}

// Numbers of float32 around which a backend may change its way of working: what
// rides along with an arrival, what fits a buffer, what needs many rounds.
inline const std::vector<int64_t> kBorders = {0,     1,      3,      1023,   2047,
                                              2048,  2049,   4097,   65535,  65536,
                                              65537, 131071, 131073, 400'003};

enum class Where { kOrdinary, kAllocated, kMixed };
inline const std::vector<Where> kEverywhere = {Where::kOrdinary, Where::kAllocated,
                                               Where::kMixed};

// The same values in memory of that kind; mixed: allocated on odd ranks only.
inline Tensor in_memory(Communicator& comm, const Tensor& values, Where where) {
  const bool allocated =
      where == Where::kAllocated || (where == Where::kMixed && comm.rank() % 2 == 1);
  if (!allocated) return values.clone();
  auto tensor = comm.allocate(values.sizes(), values.scalar_type());
  tensor.copy_(values);
  return tensor;
}

}  // namespace cohort::test
