// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/block_outputs.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cohort/layers.h"

namespace cohort {
namespace {

Tensor numbers(at::IntArrayRef shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return at::arange(1, count + 1, at::kDouble).reshape(shape);
}

TEST(BlockOutputs, DifferByAShareOfTheLargestElement) {
  const Tensor wanted = numbers({2, 4});
  Tensor given = wanted.clone();
  EXPECT_EQ(output_difference({given}, {wanted}, 0), 0);
  given[1][0] += 2;
  EXPECT_EQ(output_difference({given}, {wanted}, 0), 0.25);
  EXPECT_EQ(output_difference({wanted, given}, {wanted, wanted}, 0), 0.25);
}

TEST(BlockOutputs, APartIsComparedWithItsPlaceInTheWhole) {
  const Tensor wanted = numbers({2, 6, 3});
  for (const int part : {0, 1, 2}) {
    const Tensor given = wanted.narrow(1, 2 * part, 2);
    EXPECT_EQ(output_difference({given}, {wanted}, part), 0) << part;
    EXPECT_GT(output_difference({given}, {wanted}, (part + 1) % 3), 0) << part;
  }
}

TEST(BlockOutputs, PaddingAtTheEndOfTheLastPartIsNoDifference) {
  const Tensor wanted = numbers({1, 5});
  const Tensor last = at::constant_pad_nd(wanted.narrow(1, 3, 2), {0, 1}, 77);
  EXPECT_EQ(output_difference({last}, {wanted}, 1), 0);
  EXPECT_EQ(output_difference({numbers({1, 3})}, {wanted}, 2), 0);  // padding alone
}

TEST(BlockOutputs, WhatIsNoNumberDiffersFromEveryNumber) {
  const Tensor wanted = numbers({2});
  EXPECT_EQ(output_difference({wanted * NAN}, {wanted}, 0), INFINITY);
  EXPECT_EQ(output_difference({wanted}, {wanted * 0}, 0), INFINITY);
}

TEST(BlockOutputs, OtherShapesAreNotCompared) {
  EXPECT_EQ(output_difference({numbers({2, 2})}, {numbers({4})}, 0), 0);
  EXPECT_EQ(output_difference({numbers({2, 2})}, {numbers({4, 4})}, 0), 0);
  EXPECT_EQ(output_difference({Tensor()}, {numbers({4})}, 0), 0);
}

TEST(BlockOutputs, AreShownByBlockAndSliceOfTheGlobalBatch) {
  Chain chain;
  for (const double factor : {2.0, 3.0})
    chain.blocks.push_back(std::make_unique<FunctionBlock>(
        "times", TensorLists{},
        [factor](const Tensor& x, Context&) { return x * factor; },
        std::vector<std::string>{"input"}));
  BlockOutputs seen;
  watch_outputs(chain, [&](const OutputPlace& place, const Values& given) {
    seen[place] = given;
  });
  Context context{.slice = 5};
  Values values = {numbers({2})};
  for (const auto& block : chain.blocks) values = block->forward(values, context);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_TRUE(seen.at({.block = 0, .slice = 5})[0].equal(numbers({2}) * 2));
  EXPECT_TRUE(seen.at({.block = 1, .slice = 5})[0].equal(numbers({2}) * 6));
  EXPECT_EQ(chain.blocks[0]->name(), "times");
  EXPECT_EQ(chain.blocks[0]->fields().size(), 1u);
}

}  // namespace
}  // namespace cohort
