// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/group_slices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace cohort {
namespace {

// Ranks along kReplicate, and along kCut in each of them.
Mesh mesh_of_groups(int groups, int members) {
  return Mesh(std::array<int, kAxes>{1, groups, members, 1, 1});
}

class GroupSlicesAtSize : public testing::TestWithParam<int> {};

TEST_P(GroupSlicesAtSize, EverySliceOfTheBatchHasOneMember) {
  const int members = GetParam(), slices = 7;
  const Mesh mesh = mesh_of_groups(1, members);
  int next = 0;
  for (int m = 0; m < members; ++m) {
    const GroupSlices group(mesh, m, members, slices);
    EXPECT_EQ(group.rank_of(m), m);
    EXPECT_EQ(group.own(), group.of_member(m));
    EXPECT_EQ(group.own().begin, next);
    EXPECT_LE(group.own().count(), group.rounds());
    next = group.own().end;
  }
  EXPECT_EQ(next, slices);
}

TEST_P(GroupSlicesAtSize, AMemberHasASliceInAsManyRoundsAsItHasSlices) {
  const int members = GetParam();
  const GroupSlices group(mesh_of_groups(1, members), 0, members, 7);
  for (int m = 0; m < members; ++m) {
    int rounds = 0;
    for (int r = 0; r < group.rounds(); ++r) rounds += group.has_slice(m, r) ? 1 : 0;
    EXPECT_EQ(rounds, group.of_member(m).count());
  }
}

// A stack that is pushed as push_of() says has as many sums at the end as partials().
TEST_P(GroupSlicesAtSize, PushesLeaveThePartialsOfAMember) {
  const int members = GetParam();
  const GroupSlices group(mesh_of_groups(1, members), 0, members, 7);
  for (int m = 0; m < members; ++m) {
    int height = 0;
    for (int r = 0; group.has_slice(m, r); ++r) {
      const auto [top, merges] = group.push_of(m, r);
      EXPECT_EQ(top, height) << "member " << m << " round " << r;
      height = top + 1 - merges;
    }
    EXPECT_EQ(static_cast<size_t>(height), group.partials(m));
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, GroupSlicesAtSize, testing::Values(1, 2, 3, 5));

TEST(GroupSlices, AHybridRunHasTheNodesOfEachGroup) {
  const Mesh mesh = mesh_of_groups(2, 3);
  const GroupSlices group(mesh, 4, 3, 6);  // a slice per rank
  EXPECT_EQ(group.rank_of(0), 3);
  EXPECT_EQ(group.nodes(), group.nodes_of_group(1));
  EXPECT_THAT(group.nodes_of_group(0),
              testing::ElementsAre(TreeNode{0, 0}, TreeNode{0, 1}, TreeNode{0, 2}));
  EXPECT_THAT(group.nodes_of_group(1),
              testing::ElementsAre(TreeNode{0, 3}, TreeNode{0, 4}, TreeNode{0, 5}));
}

}  // namespace
}  // namespace cohort
