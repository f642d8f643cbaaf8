// SPDX-License-Identifier: Apache-2.0
// Steps that no generator makes yet, written by hand.
#include <gtest/gtest.h>

#include "cohort/step/testing_broken.h"

namespace cohort {
namespace {

using test::Broken;
using test::Kind;
using test::refusal;
using test::right_pipelines;

TEST(Pipelines, RightOnesPass) {
  const auto all = right_pipelines();
  EXPECT_GE(all.size(), 20u);
  for (const auto& one : all)
    EXPECT_EQ(refusal(make(one.pipe)), "accepted") << one.name;
}

// No wait can be spared here, either.
TEST(Pipelines, EveryDroppedWaitIsRefused) {
  int64_t dropped = 0;
  for (const auto& one : right_pipelines()) {
    Schedule schedule = make(one.pipe);
    if (schedule.world() > 4) continue;
    for (auto& role : schedule.roles)
      for (auto& action : role.actions) {
        const std::vector<int> waits = action.waits;
        for (size_t w = 0; w < waits.size(); ++w) {
          action.waits.erase(action.waits.begin() + static_cast<int64_t>(w));
          EXPECT_NE(refusal(schedule), "accepted") << one.name << ' ' << waits[w];
          action.waits = waits;
          ++dropped;
        }
      }
  }
  RecordProperty("dropped", static_cast<int>(dropped));
  EXPECT_GT(dropped, 300);
}

// 1,024 ranks, 96 blocks, 64 slices at each place.
TEST(Pipelines, AThousandRanksAreJudged) {
  test::Pipeline pipe{.places = 8, .replicas = 16, .tensor = 8, .slices = 16 * 64};
  for (int s = 1; s <= 8; ++s) pipe.ends.push_back(12 * s);
  pipe.order = test::one_forward_one_backward;
  const Schedule schedule = make(pipe);
  EXPECT_EQ(schedule.world(), 1024);
  EXPECT_EQ(refusal(schedule), "accepted");
}

// A refusal is one line with the rule, the role, the action and the value.
TEST(Pipelines, ARefusalSaysWhereAndWhat) {
  Broken step("gpipe_2");
  step.at(1, step.find(1, Kind::kForward)).waits.clear();
  EXPECT_EQ(
      refusal(step.schedule()),
      "[step.check] role 1 (ranks 1), action 1 Forward block 1 slice 0: R2: reads "
      "Act 0 slice 0 and does not wait for action 0 Recv slice 0");
}

}  // namespace
}  // namespace cohort
