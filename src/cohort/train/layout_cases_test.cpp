// SPDX-License-Identifier: Apache-2.0
// "Every layout" leaves out none that a user can ask for.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cohort/train/layout_oracle.h"

namespace cohort {
namespace {

constexpr int kMostRanks = 8, kBlocks = 8, kSlices = 8;

std::vector<LayoutCase> cases_with(int dp, int tp, int pp) {
  auto cases = every_layout(kMostRanks, kBlocks, kSlices);
  std::erase_if(cases, [&](const LayoutCase& one) {
    return one.layout.dp != dp || one.layout.tp != tp || one.layout.pp != pp;
  });
  return cases;
}

TEST(EveryLayout, HasEveryOrderWhereverThereAreEnoughBlocks) {
  for (int pp = 2; pp <= kMostRanks; ++pp)
    for (int tp = 1; tp * pp <= kMostRanks; ++tp)
      for (int dp = 1; dp * tp * pp <= kMostRanks; ++dp) {
        std::set<PipelineOrder> orders;
        for (const auto& one : cases_with(dp, tp, pp))
          orders.insert(one.pipeline.order);
        EXPECT_EQ(orders.size(), 2 * pp <= kBlocks ? 4 : 3)
            << "dp=" << dp << ",tp=" << tp << ",pp=" << pp;
      }
}

TEST(EveryLayout, HasEveryNumberOfCopiesThatLeavesSomethingToCut) {
  for (int dp = 1; dp <= kMostRanks; ++dp) {
    std::set<std::pair<int, int>> wanted = {{0, 1}}, found;
    for (int replicate = 1; replicate < dp; ++replicate)
      for (const int shard : {1, 2, 3})
        if (dp % replicate == 0) wanted.insert({shard, replicate});
    for (const auto& one : cases_with(dp, 1, 1))
      found.insert({one.layout.shard, one.layout.replicate});
    EXPECT_EQ(found, wanted) << "dp=" << dp;
  }
}

TEST(EveryLayout, HasEachOnceAndSequencesCutAndWhole) {
  std::set<std::string> texts;
  for (const auto& one : every_layout(kMostRanks, kBlocks, kSlices)) {
    LayoutCase named = one;
    named.recompute = {};
    EXPECT_TRUE(texts.insert(named.text()).second) << named.text();
  }
  EXPECT_TRUE(texts.contains("dp=2,tp=2,pp=2,shard=3, zero-bubble"));
  EXPECT_TRUE(texts.contains("dp=2,tp=2,pp=2,shard=3, zero-bubble, whole sequences"));
}

}  // namespace
}  // namespace cohort
