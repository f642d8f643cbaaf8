// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/exact_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

namespace cohort {
namespace {

// Numbers whose sum depends on the order of adding.
float slice_value(int slice) { return std::sin(static_cast<float>(slice) * 12.9898f); }

// A stack of sums that follows a tree.
struct Adder {
  explicit Adder(int slices) : tree(slices) {}
  void push(TreeNode node, float value) {
    sums.push_back(value);
    for (int merges = tree.push(node); merges > 0; --merges) {
      const float last = sums.back();
      sums.pop_back();
      sums.back() += last;
    }
  }
  ExactTree tree;
  std::vector<float> sums;
};

float sum_over(int ranks, int slices) {
  Adder all(slices);
  for (int r = 0; r < ranks; ++r) {
    Adder mine(slices);
    const SliceRange range = slices_of(r, ranks, slices);
    for (int s = range.begin; s < range.end; ++s) mine.push({0, s}, slice_value(s));
    EXPECT_EQ(mine.tree.nodes(), partials_of(range, slices));
    for (size_t i = 0; i < mine.sums.size(); ++i)
      all.push(mine.tree.nodes()[i], mine.sums[i]);
  }
  EXPECT_TRUE(all.tree.complete()) << ranks << " ranks, " << slices << " slices";
  return all.sums.at(0);
}

TEST(ExactTree, TheSumHasTheSameBitsForEveryNumberOfRanks) {
  for (int slices = 1; slices <= 33; ++slices)
    for (int ranks = 2; ranks <= slices; ++ranks)
      EXPECT_EQ(sum_over(ranks, slices), sum_over(1, slices))
          << ranks << " ranks, " << slices << " slices";
}

TEST(ExactTree, AnAlignedPowerOfTwoOfSlicesLeavesOneSum) {
  EXPECT_THAT(partials_of({4, 8}, 8), testing::ElementsAre(TreeNode{2, 1}));
  EXPECT_THAT(partials_of({2, 5}, 8),
              testing::ElementsAre(TreeNode{1, 1}, TreeNode{0, 4}));
}

TEST(ExactTree, OneRankNeedsLogarithmicallyManyBuffers) {
  EXPECT_EQ(buffers_for({0, 1}, 1), 1);
  EXPECT_EQ(buffers_for({0, 8}, 8), 4);
  EXPECT_EQ(buffers_for({0, 64}, 64), 7);
}

}  // namespace
}  // namespace cohort
