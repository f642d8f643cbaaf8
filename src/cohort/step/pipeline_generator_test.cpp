// SPDX-License-Identifier: Apache-2.0
// Steps of pipelines, as the generator writes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "cohort/core/error.h"
#include "cohort/step/generator.h"
#include "cohort/step/memory_plan.h"
#include "cohort/step/schedule_csv.h"
#include "cohort/step/testing_schedule.h"

namespace cohort {
namespace {

using test::count;
using test::find;
using test::refusal;
using testing::HasSubstr;

std::vector<BlockSpec> five_blocks() {
  std::vector<BlockSpec> blocks;
  for (int b = 0; b < 5; ++b) {
    const std::string name = "b" + std::to_string(b);
    blocks.push_back({.name = name,
                      .parameters = {{.name = name + ".w", .shape = {900}, .end = 900}},
                      .keeps_statistics = b == 3,
                      .activation_bytes = 2000,
                      .output_bytes = 1000,
                      .cost = 1});
  }
  return blocks;
}

struct PipeCase {
  int pp, dp, shard;
  bool elastic, exact;
};

std::vector<PipeCase> pipe_cases() {
  std::vector<PipeCase> cases;
  for (int pp : {2, 3, 5})
    for (int dp : {1, 2, 3})
      for (int shard : {0, 1, 2, 3})
        for (bool elastic : {false, true})
          for (bool exact : {false, true})
            cases.push_back({pp, dp, shard, elastic, exact});
  return cases;
}

Schedule pipeline(const PipeCase& c, int slices = 7, bool clip = false,
                  bool tensor_sums = false) {
  return generate(five_blocks(), {.dp = c.dp, .pp = c.pp, .shard = c.shard},
                  {.slices = slices,
                   .bucket_bytes = 8 * kChunk,
                   .clip = clip,
                   .tensor_sums = tensor_sums,
                   .elastic = c.elastic,
                   .exact = c.exact});
}

TEST(PipelineGenerator, EveryLayoutFollowsTheRules) {
  for (const auto& c : pipe_cases())
    for (int slices : {3, 7})
      EXPECT_EQ(refusal(pipeline(c, slices, slices == 7, slices == 3),
                        {.elastic = c.elastic}),
                "accepted")
          << "pp=" << c.pp << " dp=" << c.dp << " shard=" << c.shard << " elastic "
          << c.elastic << " exact " << c.exact << " slices " << slices;
}

TEST(PipelineGenerator, APlaceComputesItsBlocksForEverySlice) {
  const Schedule schedule = pipeline({.pp = 3, .dp = 2, .shard = 0});
  ASSERT_EQ(schedule.stages.size(), 3u);
  for (int rank = 0; rank < schedule.world(); ++rank) {
    const Role& role = schedule.role_of(rank);
    const int place = schedule.mesh.coordinate(rank, Axis::kPipe);
    const int blocks = static_cast<int>(schedule.stages[place].blocks.size());
    EXPECT_EQ(count(role)[ActionKind::kForward], blocks * role.slices);
    EXPECT_EQ(count(role)[ActionKind::kBackward], blocks * role.slices);
    const int borders = (place > 0) + (place < 2);
    EXPECT_EQ(count(role)[ActionKind::kSend], borders * role.slices);
    EXPECT_EQ(count(role)[ActionKind::kRecv], borders * role.slices);
  }
}

TEST(PipelineGenerator, NoMoreSlicesAreUnderWayThanPlacesToCome) {
  const Schedule schedule = pipeline({.pp = 3, .dp = 1, .shard = 0}, 12);
  for (int place = 0; place < 3; ++place) {
    int now = 0, most = 0;
    for (const auto& action : schedule.role_of(place).actions) {
      if (action.block != schedule.stages[place].blocks.front()) continue;
      now += action.kind == ActionKind::kForward;
      now -= action.kind == ActionKind::kBackward;
      most = std::max(most, now);
    }
    EXPECT_EQ(most, 3 - place);
  }
}

// Each place has its state once: without a second copy a lost rank is lost for good.
TEST(PipelineGenerator, TheNextPlaceHoldsASecondCopy) {
  Schedule schedule = pipeline({.pp = 3, .dp = 1, .shard = 0, .elastic = true});
  EXPECT_TRUE(has_mirrors(schedule));
  std::map<int, int> holders;
  for (const auto& role : schedule.roles)
    for (const auto& action : role.actions)
      if (action.kind == ActionKind::kUpdate) ++holders[action.buckets[0]];
  EXPECT_EQ(holders.size(), schedule.buckets.size());
  for (const auto& [bucket, times] : holders) EXPECT_EQ(times, 2) << bucket;
  EXPECT_FALSE(has_mirrors(pipeline({.pp = 3, .dp = 2, .shard = 0, .elastic = true})));
  EXPECT_TRUE(has_mirrors(pipeline({.pp = 3, .dp = 2, .shard = 1, .elastic = true})));

  // A plan in which nobody hands it on.
  Schedule without = pipeline({.pp = 3, .dp = 1, .shard = 0, .elastic = false});
  EXPECT_THAT(refusal(without, {.elastic = true}), HasSubstr("R9"));
}

TEST(PipelineGenerator, APlaceKeepsWhatIsItsOwnAndItsCopies) {
  const Schedule schedule = pipeline({.pp = 5, .dp = 1, .shard = 0, .elastic = true});
  const int64_t one = 1024 * 4;  // a bucket of one block, in float32
  for (const auto& role : schedule.roles) {
    // Whole parameters, a moment, a gradient; and master, moment and sum of the copy.
    EXPECT_EQ(kept_bytes(schedule, role), 6 * one);
  }
}

TEST(PipelineGenerator, TwoOfWhatALinkSendsHaveRoom) {
  const Schedule schedule = pipeline({.pp = 3, .dp = 1, .shard = 0});
  const Role& middle = schedule.role_of(1);
  const ValueMemory memory = value_memory(middle);
  std::map<int, int64_t> room;  // by lane
  for (size_t i = 0; i < middle.actions.size(); ++i)
    if (middle.actions[i].kind == ActionKind::kSend)
      room[middle.actions[i].lane] += memory.takes[i];
  ASSERT_EQ(room.size(), 2u);  // outputs to the next place, gradients to the one before
  for (const auto& [lane, bytes] : room) EXPECT_EQ(bytes, 2 * 1000) << lane;
  EXPECT_EQ(std::reduce(memory.takes.begin(), memory.takes.end()),
            std::reduce(memory.frees.begin(), memory.frees.end()));
}

TEST(PipelineGenerator, WhatAPlaceReceivesStaysUntilItsBackward) {
  const Schedule schedule = pipeline({.pp = 3, .dp = 1, .shard = 0});
  const Role& middle = schedule.role_of(1);
  const int first = schedule.stages[1].blocks.front();
  const ValueMemory memory = value_memory(middle);
  for (size_t i = 0; i < middle.actions.size(); ++i) {
    const Action& action = middle.actions[i];
    if (action.block != first) continue;
    if (action.kind == ActionKind::kForward) {
      EXPECT_EQ(memory.frees[i], 0) << action.slice;
    } else {
      EXPECT_GE(memory.frees[i], 1000 + 2000) << action.slice;
    }
  }
}

TEST(PipelineGenerator, AFileHasAllOfIt) {
  for (const bool elastic : {false, true}) {
    const Schedule schedule =
        pipeline({.pp = 3, .dp = 2, .shard = 2, .elastic = elastic, .exact = true});
    const Schedule back = from_csv(to_csv(schedule)).schedule;
    EXPECT_EQ(back.hash(), schedule.hash());
    EXPECT_EQ(refusal(back, {.elastic = elastic}), "accepted");
  }
}

TEST(PipelineGenerator, EvaluationsGoThroughAllPlaces) {
  for (int shard : {0, 3}) {
    const Schedule schedule =
        generate(five_blocks(), {.dp = 2, .pp = 2, .shard = shard},
                 {.slices = 2, .forward_only = true});
    EXPECT_EQ(refusal(schedule), "accepted");
    EXPECT_EQ(count(schedule.role_of(0))[ActionKind::kSend], 1);
  }
}

TEST(PipelineGenerator, WhatCannotBeIsRefused) {
  const auto why = [](const std::vector<BlockSpec>& blocks, const Layout& layout) {
    try {
      generate(blocks, layout, {.slices = 4});
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("generated");
  };
  EXPECT_THAT(why(five_blocks(), {.pp = 6}),
              HasSubstr("the model has 5 blocks, which is no stage for each; legal: "
                        "pp=1 to 5"));
  auto tied = five_blocks();
  tied[4].parameters.push_back(tied[0].parameters[0]);
  EXPECT_THAT(why(tied, {.pp = 2}),
              HasSubstr("b0.w is used by stages 0 and 1 of the pipeline"));
  EXPECT_THAT(why(five_blocks(), {.tp = 2}), HasSubstr("tp comes with a later"));
}

}  // namespace
}  // namespace cohort
