// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/matchings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace cohort {
namespace {

using testing::ElementsAre;
using Groups = std::vector<std::vector<int>>;

// The links of a pipeline, as a schedule lists them: one way, then the other.
Groups links(int places, bool ring) {
  const int count = ring ? places : places - 1;
  Groups links;
  for (int p = 0; p < count; ++p) links.push_back({p, (p + 1) % places});
  for (int p = 0; p < count; ++p) links.push_back({(p + 1) % places, p});
  return links;
}

Groups one_way(const Groups& both) {
  return {both.begin(), both.begin() + static_cast<int>(both.size()) / 2};
}

class MatchingsOfLinks : public testing::TestWithParam<int> {};

TEST_P(MatchingsOfLinks, HaveEveryGroupOnceAndNoMemberTwice) {
  Groups groups = links(GetParam(), /*ring=*/true);
  groups.push_back({0, GetParam() - 1});
  groups.push_back({0, 1, 2});
  std::multiset<int> met;
  for (const auto& matching : matchings(groups)) {
    std::set<int> members;
    for (const int group : matching) {
      met.insert(group);
      for (const int member : groups[group])
        EXPECT_TRUE(members.insert(member).second) << "member " << member;
    }
  }
  ASSERT_EQ(met.size(), groups.size());
  for (int g = 0; g < static_cast<int>(groups.size()); ++g) EXPECT_EQ(met.count(g), 1);
}

TEST_P(MatchingsOfLinks, AreTwoForEachDirectionAtAnyDepth) {
  const Groups chain = links(GetParam(), /*ring=*/false);
  EXPECT_EQ(matchings(one_way(chain)).size(), 2);
  EXPECT_EQ(matchings(chain).size(), 4);
}

// The link that closes a ring of an odd number of places fits into neither.
TEST_P(MatchingsOfLinks, OfARingAreAtMostThreeForEachDirection) {
  const Groups ring = links(GetParam(), /*ring=*/true);
  EXPECT_EQ(matchings(one_way(ring)).size(), 2 + GetParam() % 2);
  EXPECT_LE(matchings(ring).size(), 6);
}

INSTANTIATE_TEST_SUITE_P(Depths, MatchingsOfLinks, testing::Values(3, 4, 5, 8, 17));

TEST(Matchings, TakeAGroupWhereItFitsFirst) {
  const Groups links_and_tied = {{0, 1}, {1, 2}, {2, 3}, {0, 3}};
  EXPECT_THAT(matchings(links_and_tied),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

TEST(Matchings, OfNothingAreNone) { EXPECT_TRUE(matchings({}).empty()); }

}  // namespace
}  // namespace cohort
