// SPDX-License-Identifier: Apache-2.0
#include "cohort/optim/gradient_norm.h"

#include <algorithm>
#include <cmath>

#include "cohort/core/error.h"

namespace cohort {
namespace {

constexpr int kNormLanes = 8;  // sums side by side, for vector code

// Element i goes to lane i % kNormLanes, whatever the machine's vectors are.
double square_sum(const float* values, int64_t count) {
  double lanes[kNormLanes] = {};
  int64_t i = 0;
  for (; i + kNormLanes <= count; i += kNormLanes)
    for (int l = 0; l < kNormLanes; ++l) {
      const double x = values[i + l];
      lanes[l] += x * x;  // x * x is exact, so that fusing changes nothing
    }
  for (; i < count; ++i) {
    const double x = values[i];
    lanes[i % kNormLanes] += x * x;
  }
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

}  // namespace

void square_sums(const float* gradient, int64_t count, std::span<double> sums) {
  COHORT_CHECK(
      static_cast<int64_t>(sums.size()) == (count + kNormChunk - 1) / kNormChunk, count,
      " elements, ", sums.size(), " sums");
  for (size_t c = 0; c < sums.size(); ++c) {
    const int64_t begin = static_cast<int64_t>(c) * kNormChunk;
    sums[c] = square_sum(gradient + begin, std::min(kNormChunk, count - begin));
  }
}

double norm_of(std::span<const double> sums, double scale) {
  double total = 0;
  for (const double sum : sums) total += sum;
  return scale * std::sqrt(total);
}

double clip_factor(double norm, double limit) {
  if (std::isnan(norm)) return norm;
  if (limit == 0) return 1;
  return std::min(1.0, limit / (norm + kClipEps));
}

}  // namespace cohort
