// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/step_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/comm/local/local.h"
#include "cohort/engine/testing_lane.h"

namespace cohort {
namespace {

using testing::ElementsAre;

// Steps of two stretches, as a device is given them.
class StretchedSteps {
 public:
  void run(int stretch, bool whole = true) {
    const bool replayed =
        graph_.run(stretch, whole, [&] { lane_.add(text("run ", stretch)); });
    EXPECT_EQ(replayed, lane_.streams[0].back().starts_with("replay"));
  }
  void run_step(bool whole = true) {
    run(0, whole);
    run(1, whole);
  }
  std::vector<std::string> take() { return std::exchange(lane_.streams[0], {}); }
  StepGraph& graph() { return graph_; }

 private:
  test::WrittenLane lane_;
  std::vector<std::unique_ptr<Communicator>> comm_ =
      make_local(1, std::chrono::seconds(1));
  StepInFlight step_{*comm_[0], 0, at::kCPU};
  DeviceBatches batches_{{}, lane_, step_};
  StepGraph graph_{lane_, batches_, {.stretches = 2}};
};

TEST(StepGraph, EachStretchIsAGraphAndTheyAreReplayedInTurn) {
  StretchedSteps steps;
  for (int warm = 0; warm < 3; ++warm) steps.run_step();
  EXPECT_THAT(steps.take(),
              ElementsAre("run 0", "run 1", "run 0", "run 1", "run 0", "run 1"));
  steps.run(0);
  EXPECT_FALSE(steps.graph().captured());
  steps.run(1);
  EXPECT_TRUE(steps.graph().captured());
  EXPECT_THAT(steps.take(), ElementsAre("capture 0", "run 0", "replay 0", "capture 1",
                                        "run 1", "replay 1"));
  steps.run_step();
  EXPECT_THAT(steps.take(), ElementsAre("replay 0", "replay 1"));
}

// Its first stretch says what the whole step is.
TEST(StepGraph, AShortStepIsNoGraphInAnyStretch) {
  StretchedSteps steps;
  for (int warm = 0; warm < 3; ++warm) steps.run_step();
  steps.run_step(/*whole=*/false);
  steps.take();
  steps.run_step(/*whole=*/false);
  EXPECT_THAT(steps.take(), ElementsAre("run 0", "run 1"));
  steps.graph().drop();
  steps.take();
  steps.run_step();
  EXPECT_THAT(steps.take(), ElementsAre("run 0", "run 1"));
}

}  // namespace
}  // namespace cohort
