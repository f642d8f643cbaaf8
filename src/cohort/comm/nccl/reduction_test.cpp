// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/nccl/reduction.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace cohort::nccl_backend {
namespace {

// What NCCL does with integers.
Tensor extreme(const Tensor& a, const Tensor& b, ReduceOp op) {
  return op == ReduceOp::kMax ? at::maximum(a, b) : at::minimum(a, b);
}

TEST(NcclReduction, TheLargestOfFloatingValuesIsFoundAmongIntegers) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> left = {1, -1, 0, -0.0, inf, -inf, 2.5, -2.5, nan, 3, -nan},
                            right = {2, -2, -0.0, 5, 1, 1, -2.5, -3, -inf, nan, inf};
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const auto op : {ReduceOp::kMax, ReduceOp::kMin}) {
      const Tensor a = at::tensor(left, at::kDouble).to(dtype),
                   b = at::tensor(right, at::kDouble).to(dtype);
      const Tensor keys = extreme(prepared(a, op), prepared(b, op), op);
      EXPECT_FALSE(at::isFloatingType(keys.scalar_type()));
      const Tensor got = restored(keys, dtype, op, 2);
      EXPECT_EQ(got.scalar_type(), dtype);
      EXPECT_TRUE(at::allclose(got.to(at::kDouble), extreme(a, b, op).to(at::kDouble),
                               0, 0, /*equal_nan=*/true))
          << dtype << got;
    }
  }
}

TEST(NcclReduction, IntegersAndSumsAreTakenAsTheyAre) {
  const Tensor x = at::arange(6, at::kFloat);
  EXPECT_EQ(prepared(x, ReduceOp::kSum).data_ptr(), x.data_ptr());
  EXPECT_TRUE(at::equal(restored(x.clone(), at::kFloat, ReduceOp::kMean, 2), x / 2));
  const Tensor longs = at::arange(6, at::kLong);
  EXPECT_EQ(prepared(longs, ReduceOp::kMax).data_ptr(), longs.data_ptr());
  EXPECT_TRUE(prepared(x.view({2, 3}).t(), ReduceOp::kSum).is_contiguous());
}

TEST(NcclReduction, NarrowTypesAreAddedInFloat32) {
  for (const auto& [dtype, big] :
       {std::pair(at::kHalf, 2048.0), std::pair(at::kBFloat16, 256.0)}) {
    EXPECT_FALSE(sums_by_parts(dtype, ReduceOp::kSum, 2));
    EXPECT_TRUE(sums_by_parts(dtype, ReduceOp::kSum, 3));
    EXPECT_TRUE(sums_by_parts(dtype, ReduceOp::kMean, 2));
    EXPECT_FALSE(sums_by_parts(dtype, ReduceOp::kMax, 5));
    Tensor parts = at::ones({5, 7}, dtype);
    parts[0].fill_(big);
    const Tensor sum = sum_of_parts(parts, ReduceOp::kSum);
    EXPECT_TRUE(at::equal(sum, at::full({7}, big + 4, at::kDouble).to(dtype)));
    parts.fill_(40'000);
    EXPECT_TRUE(at::equal(sum_of_parts(parts, ReduceOp::kMean), parts[0]));
  }
  EXPECT_FALSE(sums_by_parts(at::kFloat, ReduceOp::kMean, 5));
}

}  // namespace
}  // namespace cohort::nccl_backend
