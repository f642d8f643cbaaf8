// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/shared_memory/reduce.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "cohort/core/error.h"

namespace cohort::shared_memory {
namespace {

// Three inputs and more meet in a block that stays in the first-level cache.
constexpr int64_t kBlock = 2048;

template <typename T>
using Accumulator =
    std::conditional_t<std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>,
                       float, T>;

// NaN wins in either place, as in at::max. Sums of integers wrap around.
template <ReduceOp op, typename A>
inline A combine(A a, A b) {
  if constexpr (op == ReduceOp::kMax) {
    return (a > b || a != a) ? a : b;
  } else if constexpr (op == ReduceOp::kMin) {
    return (a < b || a != a) ? a : b;
  } else if constexpr (std::is_integral_v<A>) {
    using Wrapping = std::make_unsigned_t<A>;
    return static_cast<A>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
  } else {
    return a + b;
  }
}

template <ReduceOp op, typename T>
inline T finish(Accumulator<T> sum, Accumulator<T> count) {
  if constexpr (op == ReduceOp::kMean) {
    return static_cast<T>(sum / count);
  } else {
    return static_cast<T>(sum);
  }
}

// An output may be an input, element by element: no iteration sees another's.
template <ReduceOp op, typename T>
void reduce_pair(const T* a, const T* b, T* x, T* y, int64_t numel) {
  using A = Accumulator<T>;
#pragma GCC ivdep
  for (int64_t i = 0; i < numel; ++i) {
    const T sum = finish<op, T>(combine<op>(A(a[i]), A(b[i])), A(2));
    x[i] = sum;
    y[i] = sum;
  }
}

template <ReduceOp op, typename T>
void reduce_pair(const T* a, const T* b, T* x, int64_t numel) {
  using A = Accumulator<T>;
#pragma GCC ivdep
  for (int64_t i = 0; i < numel; ++i) {
    x[i] = finish<op, T>(combine<op>(A(a[i]), A(b[i])), A(2));
  }
}

template <ReduceOp op, typename T>
void accumulate(Accumulator<T>* sum, const T* in, int64_t numel) {
  using A = Accumulator<T>;
#pragma GCC ivdep
  for (int64_t i = 0; i < numel; ++i) sum[i] = combine<op>(sum[i], A(in[i]));
}

template <ReduceOp op, typename T>
void store(T* out, const Accumulator<T>* sum, Accumulator<T> count, int64_t numel) {
#pragma GCC ivdep
  for (int64_t i = 0; i < numel; ++i) out[i] = finish<op, T>(sum[i], count);
}

template <ReduceOp op, typename T>
void reduce_many(std::span<const std::byte* const> inputs,
                 std::span<std::byte* const> outputs, int64_t numel) {
  using A = Accumulator<T>;
  alignas(64) A sum[kBlock];
  for (int64_t begin = 0; begin < numel; begin += kBlock) {
    const int64_t count = std::min(kBlock, numel - begin);
    const auto in = [&](size_t i) {
      return reinterpret_cast<const T*>(inputs[i]) + begin;
    };
    for (int64_t i = 0; i < count; ++i) sum[i] = A(in(0)[i]);
    for (size_t i = 1; i < inputs.size(); ++i) accumulate<op, T>(sum, in(i), count);
    T* first = reinterpret_cast<T*>(outputs[0]) + begin;
    store<op, T>(first, sum, static_cast<A>(inputs.size()), count);
    for (size_t i = 1; i < outputs.size(); ++i) {
      std::memcpy(reinterpret_cast<T*>(outputs[i]) + begin, first, count * sizeof(T));
    }
  }
}

template <ReduceOp op, typename T>
void reduce_typed(std::span<const std::byte* const> inputs,
                  std::span<std::byte* const> outputs, int64_t numel) {
  if (inputs.size() != 2 || outputs.size() > 2) {
    return reduce_many<op, T>(inputs, outputs, numel);
  }
  const auto* a = reinterpret_cast<const T*>(inputs[0]);
  const auto* b = reinterpret_cast<const T*>(inputs[1]);
  auto* x = reinterpret_cast<T*>(outputs[0]);
  if (outputs.size() == 1) return reduce_pair<op, T>(a, b, x, numel);
  reduce_pair<op, T>(a, b, x, reinterpret_cast<T*>(outputs[1]), numel);
}

template <typename T>
void reduce_as(ReduceOp op, std::span<const std::byte* const> inputs,
               std::span<std::byte* const> outputs, int64_t numel) {
  switch (op) {
    case ReduceOp::kSum:
      return reduce_typed<ReduceOp::kSum, T>(inputs, outputs, numel);
    case ReduceOp::kMean:
      return reduce_typed<ReduceOp::kMean, T>(inputs, outputs, numel);
    case ReduceOp::kMax:
      return reduce_typed<ReduceOp::kMax, T>(inputs, outputs, numel);
    case ReduceOp::kMin:
      return reduce_typed<ReduceOp::kMin, T>(inputs, outputs, numel);
  }
}

}  // namespace

void reduce(at::ScalarType dtype, ReduceOp op, std::span<const std::byte* const> inputs,
            std::span<std::byte* const> outputs, int64_t numel) {
  switch (dtype) {
    case at::kDouble:
      return reduce_as<double>(op, inputs, outputs, numel);
    case at::kFloat:
      return reduce_as<float>(op, inputs, outputs, numel);
    case at::kHalf:
      return reduce_as<c10::Half>(op, inputs, outputs, numel);
    case at::kBFloat16:
      return reduce_as<c10::BFloat16>(op, inputs, outputs, numel);
    case at::kLong:
      return reduce_as<int64_t>(op, inputs, outputs, numel);
    case at::kInt:
      return reduce_as<int32_t>(op, inputs, outputs, numel);
    case at::kByte:
      return reduce_as<uint8_t>(op, inputs, outputs, numel);
    default:
      COHORT_CHECK(false, "dtype ", static_cast<int>(dtype));
  }
}

}  // namespace cohort::shared_memory
