// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/action_lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/engine/testing_lane.h"

namespace cohort {
namespace {

using test::WrittenLane;
using testing::ElementsAre;

void run_all(ActionLanes& lanes, WrittenLane& device, const Role& role) {
  lanes.begin();
  for (int i = 0; i < static_cast<int>(role.actions.size()); ++i)
    lanes.run(i, [&] { device.add(text(i)); });
  lanes.end();
}

// What its own lane has done already nobody waits for.
TEST(ActionLanes, AnActionWaitsInItsStreamForThoseOfOtherLanes) {
  Role role;
  role.actions = {{.kind = ActionKind::kBackward},
                  {.kind = ActionKind::kReduce, .lane = 1, .waits = {0}},
                  {.kind = ActionKind::kBackward},
                  {.kind = ActionKind::kReduce, .lane = 2, .waits = {1}},
                  {.kind = ActionKind::kReduce, .lane = 1, .waits = {2}},
                  {.kind = ActionKind::kUpdate, .waits = {2, 3}}};
  WrittenLane device;
  ActionLanes lanes(device, role);
  run_all(lanes, device, role);
  EXPECT_THAT(device.streams[0],
              ElementsAre("!6", "0", "!0", "2", "!2", "?3", "5", "?7", "?8"));
  EXPECT_THAT(device.streams[1], ElementsAre("?6", "?0", "1", "!1", "?2", "4", "!7"));
  EXPECT_THAT(device.streams[2], ElementsAre("?6", "?1", "3", "!3", "!8"));
}

// A graph must not wait for what another one does; lanes are joined between them.
TEST(ActionLanes, AStretchWaitsForNothingOfTheOneBefore) {
  Role role;
  role.actions = {{.kind = ActionKind::kGather, .lane = 1},
                  {.kind = ActionKind::kForward, .waits = {0}},
                  {.kind = ActionKind::kGather, .lane = 1},
                  {.kind = ActionKind::kBackward, .waits = {2}},
                  {.kind = ActionKind::kReduce, .lane = 1, .waits = {3}}};
  WrittenLane device;
  ActionLanes lanes(device, role);
  const auto run = [&](int first, int end) {
    lanes.begin(first);
    for (int i = first; i < end; ++i) lanes.run(i, [&] { device.add(text(i)); });
  };
  run(0, 3);
  lanes.pause();
  EXPECT_THAT(device.streams[0], ElementsAre("!5", "?0", "1", "?6"));
  EXPECT_THAT(device.streams[1], ElementsAre("?5", "0", "!0", "2", "!2", "!6"));
  device.streams.clear();
  run(3, 5);
  lanes.end();
  EXPECT_THAT(device.streams[0], ElementsAre("!5", "3", "!3", "?6"));
  EXPECT_THAT(device.streams[1], ElementsAre("?5", "?3", "4", "!6"));
}

TEST(ActionLanes, AloneTheStreamOfComputingHasNoMarks) {
  Role role;
  role.actions = {{.kind = ActionKind::kForward},
                  {.kind = ActionKind::kUpdate, .waits = {0}}};
  WrittenLane device;
  ActionLanes lanes(device, role);
  run_all(lanes, device, role);
  EXPECT_THAT(device.streams[0], ElementsAre("0", "1"));
  EXPECT_EQ(device.streams.size(), 1);
}

}  // namespace
}  // namespace cohort
