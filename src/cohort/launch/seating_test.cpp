// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/seating.h"

#include <gmock/gmock.h>

namespace cohort {
namespace {

using testing::ElementsAre;

TEST(Seating, RanksThatNeedNobodyMoveUp) {
  EXPECT_THAT(seat({true, false, true}, 2, {}), ElementsAre(0, 2));
  EXPECT_THAT(seat({false, true, true}, 2, {}), ElementsAre(1, 2));
  EXPECT_THAT(seat({true, true, true}, 2, {}), ElementsAre(0, 1));
}

TEST(Seating, ATeamThatLostARankMakesRoom) {
  const Team parts{.parts = 2};
  EXPECT_THAT(seat({true, true, true, false}, 1, parts), ElementsAre(0, 1));
  EXPECT_THAT(seat({true, false, true, true}, 1, parts), ElementsAre(2, 3));
  EXPECT_THAT(seat({true, true, false, true, true, true}, 2, parts),
              ElementsAre(0, 1, 4, 5));
}

// Stages are outermost: the last ranks are a stage, and no team.
TEST(Seating, ATeamHasARankOfEveryStage) {
  const Team both{.stages = 2, .parts = 2};
  const std::vector<bool> lost_last = {true, true, true, true, true, true, true, false};
  EXPECT_THAT(seat(lost_last, 1, both), ElementsAre(0, 1, 4, 5));
  const std::vector<bool> all(8, true);
  EXPECT_THAT(seat(all, 1, both), ElementsAre(0, 1, 4, 5));
}

TEST(Seating, WhoIsLeftOfSeveralTeamsMakesANewOne) {
  const Team parts{.parts = 2};
  EXPECT_THAT(seat({true, false, true, true, false, true}, 2, parts),
              ElementsAre(0, 5, 2, 3));
}

TEST(Seating, PlacesThatNobodyFillsAreSparesAndNewcomers) {
  const Team parts{.parts = 2};
  EXPECT_THAT(seat({true, false}, 1, parts), ElementsAre(0, -1));
  EXPECT_THAT(seat({true, true}, 2, parts), ElementsAre(0, 1, -1, -1));
  EXPECT_THAT(seat({true, true, false, true}, 2, parts), ElementsAre(0, 1, -1, 3));
}

}  // namespace
}  // namespace cohort
