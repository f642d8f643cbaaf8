// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sums with one order of adding: one text, as update_arithmetic.h, for the compiler of
// the host and for NVRTC. So it includes nothing, and its functions are static.

#ifndef COHORT_EVERYWHERE
#ifdef __CUDACC__
#define COHORT_EVERYWHERE __host__ __device__
#else
#define COHORT_EVERYWHERE
#endif
#endif

namespace cohort::arithmetic {

// A chunk is summed in lanes side by side, for vector code and for threads: element i
// goes to lane i % kSumLanes, in order.
constexpr int kSumLanes = 8;

COHORT_EVERYWHERE static inline double join_lanes(const double* lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// The squares of a chunk. Those of float are exact in double and cannot overflow.
template <typename Real>
COHORT_EVERYWHERE static double square_sum(const Real* values, long long count) {
  double lanes[kSumLanes] = {};
  long long i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes)
    for (int l = 0; l < kSumLanes; ++l) {
      const double x = values[i + l];
      lanes[l] += x * x;
    }
  for (; i < count; ++i) {
    const double x = values[i];
    lanes[i % kSumLanes] += x * x;
  }
  return join_lanes(lanes);
}

// The same cut over threads: one lane of it, where value(i) is element i of a chunk in
// float or double. join_lanes() makes the sum of the chunk.
template <typename Value>
COHORT_EVERYWHERE static double lane_square_sum(long long count, int lane,
                                                const Value& value) {
  double sum = 0;
  for (long long i = lane; i < count; i += kSumLanes) {
    const double x = value(i);
    sum += x * x;
  }
  return sum;
}

// The sums of a tensor's chunks, which lie `stride` apart, in a binary tree over their
// indices: a node of level k has chunks [j << k, (j + 1) << k), as far as there are.
// A rank that holds all chunks of a node can add them alone. 0 for no chunk.
COHORT_EVERYWHERE static inline double tree_sum(const double* sums, long long count,
                                                long long stride) {
  double waiting[63];  // by level: the left child that has no sibling yet
  for (long long c = 0; c < count; ++c) {
    double node = sums[c * stride];
    int level = 0;
    for (; (c >> level) & 1; ++level) node = waiting[level] + node;
    waiting[level] = node;
  }
  bool any = false;
  double total = 0;
  for (int level = 0; (count >> level) > 0; ++level) {
    if (!((count >> level) & 1)) continue;
    total = any ? waiting[level] + total : waiting[level];
    any = true;
  }
  return total;
}

}  // namespace cohort::arithmetic
