// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/shared_memory/reduce.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

namespace cohort::shared_memory {
namespace {

// Reduces tensors of one size into `outputs` new ones; all must come out the same.
Tensor reduce_tensors(const std::vector<Tensor>& tensors, ReduceOp op, int outputs) {
  std::vector<const std::byte*> in;
  for (const auto& x : tensors) in.push_back(static_cast<std::byte*>(x.data_ptr()));
  std::vector<Tensor> results;
  std::vector<std::byte*> out;
  for (int i = 0; i < outputs; ++i) {
    results.push_back(at::empty_like(tensors[0]));
    out.push_back(static_cast<std::byte*>(results[i].data_ptr()));
  }
  reduce(tensors[0].scalar_type(), op, in, out, tensors[0].numel());
  for (int i = 1; i < outputs; ++i) {
    EXPECT_EQ(std::memcmp(out[i], out[0], results[0].nbytes()), 0);
  }
  return results[0];
}

TEST(ReduceTest, HalfTypesAreAccumulatedInFloat32AndRoundedOnce) {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    for (const int ranks : {2, 3, 5}) {
      std::vector<Tensor> tensors;
      auto sum = at::zeros({5000});
      at::manual_seed(3);
      for (int r = 0; r < ranks; ++r) {
        tensors.push_back(at::randn({5000}).to(dtype));
        sum += tensors.back().to(at::kFloat);
      }
      EXPECT_TRUE(at::equal(reduce_tensors(tensors, ReduceOp::kSum, 2), sum.to(dtype)));
      EXPECT_TRUE(at::equal(reduce_tensors(tensors, ReduceOp::kMean, 1),
                            (sum / ranks).to(dtype)));
    }
  }
}

TEST(ReduceTest, InputsAreAddedInTheirOrder) {
  for (const int outputs : {1, 2, 3}) {
    // (1e8 + 1) - 1e8 is 0 in float32; (1e8 - 1e8) + 1 is 1.
    const auto big = at::full({3000}, 1e8f), one = at::ones({3000});
    EXPECT_EQ(
        reduce_tensors({big, one, -big}, ReduceOp::kSum, outputs)[7].item<float>(), 0);
    EXPECT_EQ(
        reduce_tensors({big, -big, one}, ReduceOp::kSum, outputs)[7].item<float>(), 1);
  }
}

TEST(ReduceTest, AnOutputMayBeAnInput) {
  for (const int ranks : {1, 2, 4}) {
    std::vector<Tensor> tensors;
    std::vector<const std::byte*> in;
    std::vector<std::byte*> out;
    for (int r = 0; r < ranks; ++r) {
      tensors.push_back(at::arange(7001, at::kFloat) + r);
      out.push_back(static_cast<std::byte*>(tensors[r].data_ptr()));
      in.push_back(out.back());
    }
    reduce(at::kFloat, ReduceOp::kMax, in, out, 7001);
    for (const auto& x : tensors) {
      EXPECT_TRUE(at::equal(x, at::arange(7001, at::kFloat) + (ranks - 1)));
    }
  }
}

TEST(ReduceTest, ANaNWinsWhereverItIs) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto op : {ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kSum}) {
    for (int place = 0; place < 3; ++place) {
      std::vector<Tensor> tensors(3);
      for (int r = 0; r < 3; ++r) tensors[r] = at::full({100}, r == place ? nan : 1.0f);
      EXPECT_TRUE(reduce_tensors(tensors, op, 1).isnan().all().item<bool>());
    }
  }
}

}  // namespace
}  // namespace cohort::shared_memory
