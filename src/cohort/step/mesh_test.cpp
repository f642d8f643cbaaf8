// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cohort/core/error.h"

namespace cohort {
namespace {

using testing::ElementsAre;

constexpr Axis kAll[] = {Axis::kPipe, Axis::kReplicate, Axis::kCut, Axis::kContext,
                         Axis::kTensor};

TEST(Mesh, OfDataParallelRanksIsALine) {
  const Mesh mesh(Layout{.dp = 4});
  EXPECT_EQ(mesh.world(), 4);
  EXPECT_THAT(mesh.members(2, kDataAxes), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(mesh.index(2, kDataAxes), 2);
  EXPECT_EQ(mesh.neighbour(3, Axis::kCut, 1), 0);
  EXPECT_EQ(mesh.neighbour(0, Axis::kCut, -1), 3);
  EXPECT_EQ(mesh.text(), "cut=4");
  EXPECT_EQ(Mesh().text(), "1");
}

// The shards of a state are held by neighbours, its copies lie far apart.
TEST(Mesh, OfAHybridHasSharesInsideCopies) {
  const Mesh mesh(Layout{.dp = 6, .shard = 3, .replicate = 2});
  EXPECT_THAT(mesh.members(4, {Axis::kCut}), ElementsAre(3, 4, 5));
  EXPECT_THAT(mesh.members(4, {Axis::kReplicate}), ElementsAre(1, 4));
  EXPECT_THAT(mesh.members(4, kDataAxes), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(mesh.size(kDataAxes), 6);
}

TEST(Mesh, OfAllAxesHasTensorRanksInnermostAndStagesOutermost) {
  const Mesh mesh(Layout{.dp = 2, .tp = 2, .pp = 3});
  EXPECT_THAT(mesh.members(5, {Axis::kTensor}), ElementsAre(4, 5));
  EXPECT_THAT(mesh.members(5, kDataAxes), ElementsAre(5, 7));
  EXPECT_THAT(mesh.members(5, {Axis::kPipe}), ElementsAre(1, 5, 9));
  EXPECT_EQ(mesh.text(), "pp=3,cut=2,tp=2");
  // Ranks of one tensor group, and of all stages, compute the same slices.
  for (const int rank : {0, 1, 4, 5, 8, 9})
    EXPECT_EQ(mesh.slices(rank, 8), (SliceRange{0, 4})) << rank;
  for (const int rank : {2, 3, 6, 7, 10, 11})
    EXPECT_EQ(mesh.slices(rank, 8), (SliceRange{4, 8})) << rank;
}

TEST(Mesh, EveryRankIsInOneGroupOfEachKind) {
  const Mesh mesh(std::array<int, kAxes>{3, 2, 4, 2, 2});
  for (int bits = 0; bits < 1 << kAxes; ++bits) {
    AxisSet axes;
    for (const Axis axis : kAll)
      if (bits >> static_cast<int>(axis) & 1) axes = axes | AxisSet{axis};
    std::set<std::vector<int>> groups;
    for (int rank = 0; rank < mesh.world(); ++rank) {
      const auto members = mesh.members(rank, axes);
      ASSERT_EQ(static_cast<int>(members.size()), mesh.size(axes));
      ASSERT_TRUE(std::is_sorted(members.begin(), members.end()));
      ASSERT_EQ(members[mesh.index(rank, axes)], rank);
      groups.insert(members);
    }
    EXPECT_EQ(static_cast<int>(groups.size()) * mesh.size(axes), mesh.world());
  }
}

// Experts cut the ranks along cut and cp anew: neighbours have different ones.
TEST(Mesh, ExpertsSeeTheSameRanksInAnotherWay) {
  const Mesh mesh(Layout{.dp = 4, .tp = 2, .pp = 2, .replicate = 2, .cp = 2, .ep = 4});
  EXPECT_EQ(mesh.world(), 32);
  EXPECT_EQ(mesh.size(Axis::kExpertCut), 1);
  EXPECT_THAT(mesh.members(11, {Axis::kExpert}), ElementsAre(9, 11, 13, 15));
  EXPECT_THAT(mesh.members(11, {Axis::kReplicate, Axis::kExpertCut}),
              ElementsAre(3, 11));
  EXPECT_EQ(mesh.coordinate(11, Axis::kExpert), 1);
  EXPECT_EQ(mesh.text(), "pp=2,replicate=2,cut=2,cp=2,tp=2,ep=4");
  const Mesh two(std::array<int, kAxes>{1, 1, 4, 1, 1}, 2);
  EXPECT_THAT(two.members(2, {Axis::kExpert}), ElementsAre(2, 3));
  EXPECT_THAT(two.members(2, {Axis::kExpertCut}), ElementsAre(0, 2));
  EXPECT_THROW(two.size(AxisSet{Axis::kCut, Axis::kExpert}), BugError);
}

TEST(Mesh, RefusesExpertsThatDoNotDivideTheirRanks) {
  EXPECT_THROW(Mesh(Layout{.dp = 4, .ep = 3}), ConfigError);
  EXPECT_THROW(Mesh(Layout{.dp = 4, .replicate = 2, .ep = 4}), ConfigError);
}

TEST(Mesh, RefusesCopiesThatDoNotDivideTheRanks) {
  EXPECT_THROW(Mesh(Layout{.dp = 5, .replicate = 2}), ConfigError);
}

}  // namespace
}  // namespace cohort
