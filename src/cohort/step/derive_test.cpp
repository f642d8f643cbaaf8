// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/derive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/step/versions.h"

namespace cohort {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A list of actions that do nothing but read and write.
class DeriveTest : public testing::Test {
 protected:
  void reads(int lane, What what, int of) {
    Action action{.kind = ActionKind::kForward, .lane = lane};
    versions_.read(action, what, of);
    actions_.push_back(action);
  }
  void makes(int lane, What what, int of, int buffer = kNone) {
    Action action{.kind = ActionKind::kForward, .lane = lane};
    versions_.make(action, what, of, kNone, buffer);
    actions_.push_back(action);
  }
  void changes(int lane, What what, int of) {
    Action action{.kind = ActionKind::kForward, .lane = lane};
    versions_.change(action, what, of);
    actions_.push_back(action);
  }
  const std::vector<int>& waits_of(int action) {
    derive_waits(actions_, 4);
    return actions_[action].waits;
  }

  std::vector<Action> actions_;
  Versions versions_;
};

TEST_F(DeriveTest, AReaderWaitsForItsWriter) {
  makes(0, What::kAct, 0);
  makes(0, What::kAct, 1);
  reads(1, What::kAct, 0);
  EXPECT_THAT(waits_of(2), ElementsAre(0));
}

TEST_F(DeriveTest, NobodyWaitsForItsOwnLane) {
  makes(1, What::kAct, 0);
  reads(1, What::kAct, 0);
  changes(1, What::kAct, 0);
  EXPECT_THAT(waits_of(1), IsEmpty());
  EXPECT_THAT(waits_of(2), IsEmpty());
}

TEST_F(DeriveTest, WhatIsGivenHasNoWriter) {
  reads(1, What::kState, 0);
  EXPECT_THAT(waits_of(0), IsEmpty());
}

TEST_F(DeriveTest, TheNextVersionWaitsForAllReaders) {
  reads(1, What::kState, 0);
  reads(2, What::kState, 0);
  changes(0, What::kState, 0);
  EXPECT_THAT(waits_of(2), ElementsAre(0, 1));
}

TEST_F(DeriveTest, ABufferIsWrittenWhenNobodyUsesItAnyMore) {
  makes(1, What::kLeaf, 0, /*buffer=*/5);
  reads(2, What::kLeaf, 0);
  makes(0, What::kLeaf, 1, 6);
  makes(0, What::kLeaf, 2, 5);
  EXPECT_THAT(waits_of(2), IsEmpty());
  EXPECT_THAT(waits_of(3), ElementsAre(1));
}

// Action 2 has waited for 1, which has waited for 0.
TEST_F(DeriveTest, WhatIsCertainIsNotWaitedFor) {
  makes(0, What::kAct, 0);
  Action both{.kind = ActionKind::kForward, .lane = 1};
  versions_.read(both, What::kAct, 0);
  versions_.make(both, What::kAct, 1);
  actions_.push_back(both);
  Action last{.kind = ActionKind::kForward, .lane = 2};
  versions_.read(last, What::kAct, 0);
  versions_.read(last, What::kAct, 1);
  actions_.push_back(last);
  EXPECT_THAT(waits_of(1), ElementsAre(0));
  EXPECT_THAT(waits_of(2), ElementsAre(1));
}

TEST_F(DeriveTest, WhatALaneHasWaitedForIsCertainForTheNext) {
  makes(0, What::kAct, 0);
  reads(1, What::kAct, 0);
  reads(1, What::kAct, 0);
  EXPECT_THAT(waits_of(1), ElementsAre(0));
  EXPECT_THAT(waits_of(2), IsEmpty());
}

TEST_F(DeriveTest, WhoStartsAheadOfItsLaneFinishesWhatItReadsAndOverwrites) {
  makes(1, What::kLeaf, 0, 7);
  makes(1, What::kLeaf, 1, 8);
  reads(1, What::kLeaf, 0);
  makes(0, What::kLeaf, 2, 8);
  makes(1, What::kLeaf, 3, 7);
  const auto inputs = inputs_in_lane(actions_);
  EXPECT_THAT(inputs[1], IsEmpty());
  EXPECT_THAT(inputs[2], ElementsAre(0));
  EXPECT_THAT(inputs[3], IsEmpty());
  EXPECT_THAT(inputs[4], ElementsAre(2));
}

TEST_F(DeriveTest, EarlierWaitsAreDropped) {
  makes(0, What::kAct, 0);
  reads(1, What::kAct, 0);
  actions_[0].waits = {7};
  actions_[1].waits = {};
  EXPECT_THAT(waits_of(0), IsEmpty());
  EXPECT_THAT(waits_of(1), ElementsAre(0));
}

}  // namespace
}  // namespace cohort
