// SPDX-License-Identifier: Apache-2.0
#include "cohort/optim/gradient_norm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace cohort {
namespace {

std::vector<double> sums_of(const at::Tensor& values) {
  std::vector<double> sums((values.numel() + kNormChunk - 1) / kNormChunk);
  square_sums(values.const_data_ptr<float>(), values.numel(), sums);
  return sums;
}

at::Tensor some_gradient(int64_t count) {
  return (at::arange(count, at::kDouble) * 0.37).sin().mul(3).to(at::kFloat);
}

TEST(GradientNorm, IsThatOfTheTensor) {
  for (const int64_t count : {0, 1, 7, 1024, 1025, 5000}) {
    const at::Tensor g = some_gradient(count);
    EXPECT_NEAR(norm_of(sums_of(g), 0.25),
                0.25 * g.to(at::kDouble).norm().item<double>(), 1e-12 * (count + 1));
  }
}

TEST(GradientNorm, BitsDoNotDependOnWhereTheTensorIsCut) {
  const at::Tensor g = some_gradient(5000);
  const auto whole = sums_of(g);
  for (const int64_t chunks : {1, 2, 4}) {
    const int64_t cut = chunks * kNormChunk;
    auto parts = sums_of(g.narrow(0, 0, cut));
    const auto rest = sums_of(g.narrow(0, cut, 5000 - cut));
    parts.insert(parts.end(), rest.begin(), rest.end());
    EXPECT_EQ(parts, whole) << chunks;
  }
}

TEST(GradientNorm, IsFiniteUnlessAnElementIsNot) {
  at::Tensor g = at::full({3000}, std::numeric_limits<float>::max());
  EXPECT_TRUE(std::isfinite(norm_of(sums_of(g), 1)));
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    g[2999] = bad;
    const auto sums = sums_of(g);
    EXPECT_TRUE(std::isfinite(sums[1]));
    EXPECT_FALSE(std::isfinite(sums[2])) << bad;
  }
}

TEST(ClipFactor, IsThatOfPyTorch) {
  EXPECT_DOUBLE_EQ(clip_factor(4, 1), 1 / (4 + 1e-6));
  EXPECT_DOUBLE_EQ(clip_factor(0.5, 1), 1);
  EXPECT_DOUBLE_EQ(clip_factor(0, 1), 1);
  EXPECT_DOUBLE_EQ(clip_factor(1e30, 0), 1);
  EXPECT_DOUBLE_EQ(clip_factor(INFINITY, 1), 0);
  EXPECT_TRUE(std::isnan(clip_factor(NAN, 1)));
  EXPECT_TRUE(std::isnan(clip_factor(NAN, 0)));
}

}  // namespace
}  // namespace cohort
