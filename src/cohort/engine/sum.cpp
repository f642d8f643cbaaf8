// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/sum.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "cohort/core/error.h"

namespace cohort {
namespace {

// What meets here stays in the first-level cache.
constexpr int64_t kSumBlock = 2048;

template <typename T>
void widen_typed(const T* __restrict in, int64_t count, float* __restrict out) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(in[i]);
}

template <typename T>
void widen_add_typed(const T* __restrict in, int64_t count, float* __restrict out) {
  for (int64_t i = 0; i < count; ++i) out[i] += static_cast<float>(in[i]);
}

template <typename T>
void add_pair(const T* __restrict a, const T* __restrict b, int64_t count,
              float* __restrict out) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = static_cast<float>(a[i]) + static_cast<float>(b[i]);
}

template <typename T>
void sum_typed(std::span<const void* const> inputs, int64_t count, float* out) {
  const auto in = [&](size_t i) { return static_cast<const T*>(inputs[i]); };
  if (inputs.size() == 1) return widen_typed(in(0), count, out);
  for (int64_t at = 0; at < count; at += kSumBlock) {
    const int64_t n = std::min(kSumBlock, count - at);
    add_pair(in(0) + at, in(1) + at, n, out + at);
    for (size_t i = 2; i < inputs.size(); ++i) widen_add_typed(in(i) + at, n, out + at);
  }
}

// Calls `run` with a value of the type that `dtype` names.
template <typename Run>
void with_type(at::ScalarType dtype, const Run& run) {
  switch (dtype) {
    case at::kFloat:
      return run(float{});
    case at::kBFloat16:
      return run(c10::BFloat16{});
    case at::kHalf:
      return run(c10::Half{});
    default:
      COHORT_CHECK(false, "no sums of dtype ", c10::toString(dtype));
  }
}

}  // namespace

void sum_in_order(at::ScalarType dtype, std::span<const void* const> inputs,
                  int64_t count, float* out) {
  if (inputs.empty()) {
    std::fill_n(out, count, 0.0f);
    return;
  }
  with_type(dtype, [&](auto t) { sum_typed<decltype(t)>(inputs, count, out); });
}

void widen(at::ScalarType dtype, const void* in, int64_t count, float* out) {
  with_type(dtype, [&](auto t) {
    widen_typed(static_cast<const decltype(t)*>(in), count, out);
  });
}

void widen_add(at::ScalarType dtype, const void* in, int64_t count, float* out) {
  with_type(dtype, [&](auto t) {
    widen_add_typed(static_cast<const decltype(t)*>(in), count, out);
  });
}

const float* widened_part(const Tensor& flat, int64_t at, int64_t count,
                          std::vector<float>& memory) {
  if (flat.scalar_type() == at::kFloat) return flat.const_data_ptr<float>() + at;
  const auto width = static_cast<int64_t>(flat.element_size());
  memory.resize(static_cast<size_t>(count));
  widen(flat.scalar_type(),
        static_cast<const std::byte*>(flat.const_data_ptr()) + at * width, count,
        memory.data());
  return memory.data();
}

const double* widened_part(const Tensor& flat, int64_t at, int64_t,
                           std::vector<double>&) {
  return flat.const_data_ptr<double>() + at;
}

void narrow(at::ScalarType dtype, const float* in, int64_t count, void* out) {
  with_type(dtype, [&](auto t) {
    using T = decltype(t);
    T* const to = static_cast<T*>(out);
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(in[i]);
  });
}

TreeFold::TreeFold(int slices, std::span<const TreeNode> nodes) {
  ExactTree tree(slices);
  for (const TreeNode& node : nodes) {
    depth_ = std::max(depth_, static_cast<int>(tree.nodes().size()) + 1);
    merges_.push_back(tree.push(node));
  }
  left_ = tree.nodes();
  scratch_.resize(static_cast<size_t>(depth_ * kSumBlock));
}

void TreeFold::operator()(std::span<const float* const> values, int64_t count,
                          std::span<float* const> out) {
  COHORT_CHECK(values.size() == merges_.size() && out.size() == left_.size(),
               "one value per node");
  for (int64_t at = 0; at < count; at += kSumBlock) {
    const int64_t n = std::min(kSumBlock, count - at);
    int height = 0;
    const auto level = [&](int i) { return scratch_.data() + i * kSumBlock; };
    for (size_t i = 0; i < values.size(); ++i) {
      std::memcpy(level(height++), values[i] + at, n * sizeof(float));
      for (int m = 0; m < merges_[i]; ++m, --height)
        widen_add_typed(level(height - 1), n, level(height - 2));
    }
    for (int i = 0; i < height; ++i)
      std::memcpy(out[i] + at, level(i), n * sizeof(float));
  }
}

// x - x is 0 for every finite x, and no number otherwise.
template <typename Real>
bool all_finite(const Real* values, int64_t count) {
  Real sum = 0;
  for (int64_t at = 0; at < count; at += kSumBlock) {
    std::array<Real, 16> lanes{};
    const int64_t end = std::min(at + kSumBlock, count);
    int64_t i = at;
    for (; i + 16 <= end; i += 16)
      for (int64_t k = 0; k < 16; ++k) lanes[k] += values[i + k] - values[i + k];
    for (; i < end; ++i) lanes[0] += values[i] - values[i];
    for (Real lane : lanes) sum += lane;
  }
  return sum == 0;
}

template bool all_finite(const float* values, int64_t count);
template bool all_finite(const double* values, int64_t count);

}  // namespace cohort
