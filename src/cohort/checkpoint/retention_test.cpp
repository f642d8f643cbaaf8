// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cohort/checkpoint/testing_checkpoint.h"

namespace cohort {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using namespace cohort::test;  // NOLINT: a test

CheckpointInfo info(int64_t step, double loss, std::string trouble = "") {
  CheckpointInfo out;
  out.path = std::to_string(step);
  out.step = step;
  out.trouble = std::move(trouble);
  out.manifest.run.metrics["loss"] = loss;
  return out;
}

const std::vector<CheckpointInfo> kSome = {info(10, 0.5), info(20, 0.1), info(30, 0.9),
                                           info(40, 0.2), info(50, 0.3)};

TEST(StepFolder, OnlyANameThatItWouldGiveIsAStep) {
  EXPECT_EQ(step_of_folder(step_folder(7)), 7);
  EXPECT_EQ(step_of_folder(step_folder(1'234'567'890)), 1'234'567'890);
  for (const char* name : {"", "log", "step-", "step-7", "step-000000007",
                           "step--0000007", "stop-00000007", "step-00000007x"})
    EXPECT_EQ(step_of_folder(name), std::nullopt) << name;
}

TEST(Retention, WithoutARuleAllStay) { EXPECT_THAT(superfluous(kSome, {}), IsEmpty()); }

TEST(Retention, EachRuleKeepsItsOwn) {
  EXPECT_THAT(superfluous(kSome, {.last = 2}), ElementsAre("10", "20", "30"));
  EXPECT_THAT(superfluous(kSome, {.last = 1, .every_steps = 20}),
              ElementsAre("10", "30"));
  EXPECT_THAT(superfluous(kSome, {.last = 1, .best = 2, .metric = "loss"}),
              ElementsAre("10", "30"));
  EXPECT_THAT(superfluous(kSome, {.last = 1,
                                  .best = 1,
                                  .metric = "loss",
                                  .better = Retention::Better::kHigher}),
              ElementsAre("10", "20", "40"));
  EXPECT_THAT(superfluous(kSome, {.last = 1, .best = 2, .metric = "accuracy"}),
              ElementsAre("10", "20", "30", "40"));
}

TEST(Retention, NoNumberIsNeverTheBestAndTheDamagedAreLeft) {
  const std::vector<CheckpointInfo> some = {info(1, std::nan("")), info(2, 0.7),
                                            info(3, 0.1, "torn"), info(4, 0.9)};
  EXPECT_THAT(superfluous(some, {.last = 1, .best = 1, .metric = "loss"}),
              ElementsAre("1"));
}

class RetentionOnDisk : public CheckpointFolder {};

TEST_F(RetentionOnDisk, NothingThatAKeptOneNeedsIsRemoved) {
  auto state = some_state();
  for (int64_t step = 1; step <= 6; ++step) {
    state[0].flat[0] =
        static_cast<float>(-step);  // one chunk per step; the rest is shared
    save(root_, step, state, step % 3 + 1, {.last = 2, .every_steps = 4});
    for (const auto& kept : list_checkpoints(root_)) {
      EXPECT_EQ(kept.trouble, "");
      EXPECT_TRUE(Checkpoint(kept.path).verify().empty()) << kept.path;
      EXPECT_EQ(Checkpoint(kept.path).read("fc.weight")[0][0].item<float>(),
                static_cast<float>(-kept.step));
    }
  }
  std::vector<int64_t> steps;
  for (const auto& kept : list_checkpoints(root_)) steps.push_back(kept.step);
  EXPECT_THAT(steps, ElementsAre(4, 5, 6));
  EXPECT_EQ(hidden_entries(root_), 0);
}

}  // namespace
}  // namespace cohort
