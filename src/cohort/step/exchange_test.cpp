// SPDX-License-Identifier: Apache-2.0
// Steps whose exchanges are kernels of a device, one at a time, and whose steps run
// into one another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/step/generator.h"
#include "cohort/step/testing_broken.h"

namespace cohort {
namespace {

using test::Broken;
using test::Kind;
using test::refusal;
using test::right_pipelines;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr CheckOptions kOneAtATime{.one_exchange_at_a_time = true};

std::vector<BlockSpec> three_blocks() {
  std::vector<BlockSpec> blocks(3);
  for (int b = 0; b < 3; ++b)
    blocks[b] = {.name = text("block ", b),
                 .parameters = {{.name = text("w", b), .shape = {2000}, .end = 2000}},
                 .keeps_statistics = b == 1};
  return blocks;
}

template <typename Visit>
void for_each_data_parallel(bool run_ahead, Visit&& visit) {
  for (int shard = 0; shard <= 3; ++shard)
    for (const int replicate : {1, 2})
      for (const bool elastic : {false, true})
        for (const bool shares : {false, true}) {
          if (shard == 0 && replicate == 2) continue;
          visit(generate(three_blocks(),
                         {.dp = 4, .shard = shard, .replicate = replicate},
                         {.slices = 6,
                          .bucket_bytes = 1,
                          .elastic = elastic,
                          .run_ahead = run_ahead,
                          .shares_memory = shares}),
                text("shard ", shard, " replicate ", replicate, " elastic ", elastic));
        }
}

// Two neighbours that both send first wait for ever, unless each takes what the other
// sends in the same exchange.
TEST(OneExchangeAtATime, NeedsBatchesWhereNeighboursSendToEachOther) {
  for (const char* name : {"1f1b_2", "1f1b_4", "zero_bubble_2"}) {
    Broken step(name);
    EXPECT_EQ(refusal(step.schedule()), "accepted") << name;
    EXPECT_THAT(refusal(step.schedule(), kOneAtATime),
                HasSubstr(": R6: waits for ever"))
        << name;
  }
}

TEST(OneExchangeAtATime, AcceptsPipelinesInBatches) {
  int batches = 0;
  for (auto [name, pipe] : right_pipelines()) {
    pipe.batched = true;
    const Schedule schedule = make(pipe);
    EXPECT_EQ(refusal(schedule, kOneAtATime), "accepted") << name;
    for (const auto& role : schedule.roles)
      for (const auto& action : role.actions) batches += action.batch != kNone;
  }
  EXPECT_GT(batches, 100);
}

TEST(OneExchangeAtATime, AcceptsDataParallelSteps) {
  for_each_data_parallel(false, [](const Schedule& schedule, const std::string& name) {
    EXPECT_EQ(refusal(schedule, kOneAtATime), "accepted") << name;
  });
}

// In lanes of their own two collectives may pass each other; one after another not.
TEST(OneExchangeAtATime, RefusesCollectivesInAnotherOrder) {
  Broken step("gpipe_uneven_slices");
  const int loss = step.find(0, Kind::kReduce), bucket = loss + 1;
  ASSERT_NE(step.at(0, loss).lane, step.at(0, bucket).lane);
  step.exchange(0, loss, bucket);
  EXPECT_EQ(refusal(step.schedule()), "accepted");
  EXPECT_THAT(refusal(step.schedule(), kOneAtATime), HasSubstr(": R6: waits for ever"));
}

class BrokenBatch : public testing::Test {
 protected:
  BrokenBatch() {
    for (auto [name, pipe] : right_pipelines())
      if (name == "1f1b_4") {
        pipe.batched = true;
        step_.schedule() = make(pipe);
      }
    while (step_.at(1, first_).batch == kNone) ++first_;
  }
  std::string verdict() { return refusal(step_.schedule()); }

  Broken step_{"1f1b_4"};
  int first_ = 0;  // first action of a batch of role 1
};

TEST_F(BrokenBatch, BeginsTogether) {
  ASSERT_EQ(verdict(), "accepted");
  Action& second = step_.at(1, first_ + 1);
  ASSERT_FALSE(second.waits.empty());
  second.waits.clear();
  EXPECT_THAT(verdict(), HasSubstr(": R5: is in a batch with action"));
}

TEST_F(BrokenBatch, HasNoOrderOfItsOwn) {
  step_.at(1, first_ + 1).waits.push_back(first_);
  EXPECT_THAT(verdict(), HasSubstr("of its own batch; legal: they begin together"));
}

TEST_F(BrokenBatch, IsInOnePiece) {
  const int batch = step_.at(1, first_).batch;
  step_.at(1, step_.find_last(1, Kind::kRecv)).batch = batch;
  EXPECT_THAT(verdict(), HasSubstr(text(": R5: is of batch ", batch, ", as action")));
}

TEST_F(BrokenBatch, IsOfTransfersAlone) {
  step_.at(1, step_.find(1, Kind::kForward)).batch = 77;
  EXPECT_THAT(verdict(), HasSubstr(": R5: is of batch 77; legal: Send and Recv"));
}

// What is cut between steps is gathered when it was updated.
TEST(RunAhead, AGatherWaitsForTheUpdateOfTheStepBefore) {
  const Schedule schedule =
      generate(three_blocks(), {.dp = 2, .shard = 3}, {.slices = 2, .run_ahead = true});
  const Role& role = schedule.roles[0];
  const Action& gather = role.actions[test::find(role, Kind::kGather)];
  EXPECT_TRUE(gather.waits.empty());
  EXPECT_THAT(gather.waits_before,
              ElementsAre(test::find(role, Kind::kUpdate, gather.buckets[0])));
}

// How many waits for the step before there are: none can be spared.
int64_t expect_all_needed(Schedule schedule, const std::string& name) {
  int64_t waits = 0;
  for (auto& role : schedule.roles)
    for (auto& action : role.actions) {
      const std::vector<int> all = action.waits_before;
      for (const int wait : all) {
        std::erase(action.waits_before, wait);
        EXPECT_THAT(refusal(schedule), HasSubstr("of the step before"))
            << name << ": " << name_of(action.kind) << " without " << wait;
        action.waits_before = all;
        ++waits;
      }
    }
  return waits;
}

TEST(RunAhead, DataParallelStepsWaitForWhatTheyNeed) {
  int64_t waits = 0;
  for_each_data_parallel(true, [&](const Schedule& schedule, const std::string& name) {
    EXPECT_EQ(refusal(schedule), "accepted") << name;
    waits += expect_all_needed(schedule, name);
  });
  RecordProperty("waits", static_cast<int>(waits));
  EXPECT_GT(waits, 10);
}

TEST(RunAhead, PipelinesWaitForWhatTheyNeed) {
  int64_t waits = 0;
  for (auto [name, pipe] : right_pipelines()) {
    pipe.runs_ahead = true;
    const Schedule schedule = make(pipe);
    EXPECT_EQ(refusal(schedule), "accepted") << name;
    if (schedule.world() <= 4) waits += expect_all_needed(schedule, name);
  }
  RecordProperty("waits", static_cast<int>(waits));
  EXPECT_GT(waits, 30);
}

TEST(RunAhead, WaitsOfAStepThatHasEndedAreRefused) {
  Broken step("gpipe_2");
  step.at(0, 0).waits_before = {3};
  EXPECT_THAT(refusal(step.schedule()),
              HasSubstr("R1: waits for action 3 of the step before; legal: none"));
  step.schedule().runs_ahead = true;
  step.at(0, 0).waits_before = {1 << 20};
  EXPECT_THAT(refusal(step.schedule()), HasSubstr("legal: one of this list"));
}

TEST(Stages, ABlockIsComputedWhereItsStageIs) {
  Broken step("1f1b_2");
  std::swap(step.schedule().stages[0].place, step.schedule().stages[1].place);
  EXPECT_THAT(refusal(step.schedule()), HasSubstr("legal: where the stage of block"));
}

TEST(Stages, ABlockIsOfOneStage) {
  Broken step("1f1b_2");
  step.schedule().stages[1].blocks.push_back(0);
  EXPECT_THAT(refusal(step.schedule()), HasSubstr("block 0 is of several stages"));
  step.schedule().stages[1] = {.place = 2, .blocks = {1}};
  EXPECT_THAT(refusal(step.schedule()), HasSubstr("stage 1 is at place 2; legal"));
}

TEST(Stages, BlocksOfAStageFollowOneAnother) {
  const auto refused = [](std::vector<int> blocks) {
    Broken step("1f1b_2");
    step.schedule().stages[1].blocks = std::move(blocks);
    return refusal(step.schedule());
  };
  EXPECT_THAT(refused({}), HasSubstr("stage 1 has no block; legal: one"));
  EXPECT_THAT(refused({2, 4}), HasSubstr("stage 1 has block 4 behind 2; legal: 3"));
  EXPECT_THAT(refused({999}), HasSubstr("stage 1 has blocks 999 to 999; legal"));
  EXPECT_THAT(refused({-1}), HasSubstr("stage 1 has blocks -1 to -1; legal"));
}

}  // namespace
}  // namespace cohort
