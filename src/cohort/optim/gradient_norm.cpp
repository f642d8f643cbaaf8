// SPDX-License-Identifier: Apache-2.0
#include "cohort/optim/gradient_norm.h"

#include <algorithm>
#include <cmath>

#include "cohort/core/error.h"
#include "cohort/optim/sum_arithmetic.h"
#include "cohort/optim/update_arithmetic.h"

namespace cohort {
namespace {

template <typename Real>
void square_typed(const Real* gradient, int64_t count, std::span<double> sums) {
  COHORT_CHECK(
      static_cast<int64_t>(sums.size()) == (count + kNormChunk - 1) / kNormChunk, count,
      " elements, ", sums.size(), " sums");
  for (size_t c = 0; c < sums.size(); ++c) {
    const int64_t begin = static_cast<int64_t>(c) * kNormChunk;
    sums[c] =
        arithmetic::square_sum(gradient + begin, std::min(kNormChunk, count - begin));
  }
}

}  // namespace

void square_sums(const float* gradient, int64_t count, std::span<double> sums) {
  square_typed(gradient, count, sums);
}

void square_sums(const double* gradient, int64_t count, std::span<double> sums) {
  square_typed(gradient, count, sums);
}

double norm_of(std::span<const double> sums, double scale) {
  double total = 0;
  for (const double sum : sums) total += sum;
  return scale * std::sqrt(total);
}

double clip_factor(double norm, double limit) {
  return arithmetic::clip_factor(norm, limit, kClipEps);
}

}  // namespace cohort
