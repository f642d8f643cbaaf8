// SPDX-License-Identifier: Apache-2.0
#pragma once

// The loss over tokens, one pass over the logits each way (step/logit_kernels.h). A
// block takes a row at a time.

#include "cohort/engine/cuda/kernels/memory.cuh"

namespace cohort::kernels {

// A sum of exponentials, as exp(most) * sum: nothing overflows.
struct ExpSum {
  float most, sum;
};

// Its `most` is below every logit; infinity would give inf - inf.
__device__ inline ExpSum no_sum() { return {-3.4e38f, 0}; }

__device__ inline ExpSum joined(const ExpSum& a, const ExpSum& b) {
  const float most = a.most > b.most ? a.most : b.most;
  return {most, a.sum * expf(a.most - most) + b.sum * expf(b.most - most)};
}

template <typename T>
__device__ inline ExpSum sum_of_row(const T* row, int64_t columns) {
  ExpSum total = no_sum();
  const auto raise_to = [&](float most) {
    if (!(most > total.most)) return;
    total.sum *= expf(total.most - most);
    total.most = most;
  };
  for_elements(
      columns, packs(row), threadIdx.x, blockDim.x,
      [&](int64_t i) {
        const Pack<float> x = load_wide(row + i);
        float most = x.at[0];
        for (int e = 1; e < kPack; ++e) most = x.at[e] > most ? x.at[e] : most;
        raise_to(most);
        for (int e = 0; e < kPack; ++e) total.sum += expf(x.at[e] - total.most);
      },
      [&](int64_t i) {
        const float x = widened(row[i]);
        raise_to(x);
        total.sum += expf(x - total.most);
      });
  return total;
}

// The parts of all threads of a block, in the order of threads; thread 0 has the whole.
__device__ inline ExpSum sum_of_block(const ExpSum& mine) {
  constexpr int kJoined = 16;
  __shared__ ExpSum parts[kThreads];
  parts[threadIdx.x] = mine;
  __syncthreads();
  const int threads = static_cast<int>(blockDim.x);
  const int first = static_cast<int>(threadIdx.x) * kJoined;
  ExpSum whole = no_sum();
  for (int t = first; t < first + kJoined && t < threads; ++t)
    whole = joined(whole, parts[t]);
  __syncthreads();
  if (first < threads) parts[threadIdx.x] = whole;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int t = 1; t * kJoined < threads; ++t) whole = joined(whole, parts[t]);
  __syncthreads();
  return whole;
}

template <typename T>
__device__ inline void row_numbers(const LogitArguments& a) {
  for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    const T* const row = static_cast<const T*>(a.logits) + r * a.stride;
    const ExpSum whole = sum_of_block(sum_of_row(row, a.columns));
    if (threadIdx.x > 0) continue;
    const int64_t place = a.places[r];
    a.log_sums[r] =
        static_cast<double>(whole.most) + log(static_cast<double>(whole.sum));
    a.targets[r] = place < 0 ? 0 : static_cast<double>(widened(row[place]));
  }
}

template <typename T>
__device__ inline void turn_into_gradient(const LogitArguments& a) {
  for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    T* const row = static_cast<T*>(a.logits) + r * a.stride;
    const bool counts = a.counted[r];
    const float factor = static_cast<float>(*a.factor);
    const float log_sum = static_cast<float>(a.log_sums[r]);
    const int64_t place = a.places[r];
    const auto gradient = [&](int64_t column, float logit) {
      if (!counts || column >= a.columns) return 0.0f;
      return factor * (expf(logit - log_sum) - (column == place ? 1.0f : 0.0f));
    };
    for_elements(
        a.stride, packs(row), threadIdx.x, blockDim.x,
        [&](int64_t i) {
          Pack<float> x = load_wide(row + i);
          for (int e = 0; e < kPack; ++e) x.at[e] = gradient(i + e, x.at[e]);
          store_pack(row + i, x);
        },
        [&](int64_t i) { put(row[i], gradient(i, widened(row[i]))); });
  }
}

}  // namespace cohort::kernels
