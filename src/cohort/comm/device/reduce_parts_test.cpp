// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/device/reduce_parts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

namespace cohort::device_comm {
namespace {

Tensor reduced_to(const std::vector<Tensor>& parts, ReduceOp op) {
  Tensor out = at::empty_like(parts[0]);
  reduce_parts(out, parts, op);
  return out;
}

TEST(ReduceParts, NarrowTypesAreAddedInFloat32AndRoundedOnce) {
  for (const auto& [dtype, big] :
       {std::pair(at::kHalf, 2048.0), std::pair(at::kBFloat16, 256.0)}) {
    std::vector<Tensor> parts(5, at::ones({7}, dtype));
    parts[0] = at::full({7}, big, dtype);
    EXPECT_TRUE(at::equal(reduced_to(parts, ReduceOp::kSum),
                          at::full({7}, big + 4, at::kDouble).to(dtype)));
    for (Tensor& part : parts) part = at::full({7}, 40'000, dtype);
    EXPECT_TRUE(at::equal(reduced_to(parts, ReduceOp::kMean), parts[0]));
  }
}

TEST(ReduceParts, AMeanIsDividedOnceAndPartsStay) {
  const std::vector<Tensor> parts = {at::full({3}, 1.f), at::full({3}, 2.f),
                                     at::full({3}, 4.f)};
  EXPECT_TRUE(at::equal(reduced_to(parts, ReduceOp::kMean), at::full({3}, 7.f / 3)));
  EXPECT_EQ(parts[0][0].item<float>(), 1);
  EXPECT_TRUE(at::equal(reduced_to({parts[1]}, ReduceOp::kMean), parts[1]));
}

TEST(ReduceParts, ANanWinsAndIntegersWrap) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor a = at::tensor({1.f, nan, -3.f, 0.f}),
               b = at::tensor({2.f, 9.f, nan, -1.f});
  for (const auto op : {ReduceOp::kMax, ReduceOp::kMin}) {
    const Tensor got = reduced_to({a, b}, op);
    EXPECT_TRUE(got.isnan()[1].item<bool>());
    EXPECT_TRUE(got.isnan()[2].item<bool>());
    EXPECT_EQ(got[3].item<float>(), op == ReduceOp::kMax ? 0 : -1);
  }
  const Tensor bytes = at::full({2}, 200, at::kByte);
  EXPECT_EQ(reduced_to({bytes, bytes}, ReduceOp::kSum)[0].item<int>(), 144);
}

}  // namespace
}  // namespace cohort::device_comm
