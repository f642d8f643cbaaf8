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

std::vector<BlockSpec> seven_blocks() {
  std::vector<BlockSpec> blocks;
  for (int b = 0; b < 7; ++b) {
    const std::string name = "b" + std::to_string(b);
    blocks.push_back({.name = name,
                      .parameters = {{.name = name + ".w", .shape = {900}, .end = 900}},
                      .keeps_statistics = b == 3,
                      .activation_bytes = 2000,
                      .output_bytes = 1000,
                      .deferred_bytes = 1500,
                      .cost = 1});
  }
  return blocks;
}

struct PipeCase {
  int pp, dp, shard;
  bool elastic, exact;
  PipelineOrder order = PipelineOrder::kOneForwardOneBackward;
};

constexpr PipelineOrder kOrders[] = {
    PipelineOrder::kGpipe, PipelineOrder::kOneForwardOneBackward,
    PipelineOrder::kInterleaved, PipelineOrder::kZeroBubble};

PipelineOptions options_of(PipelineOrder order) {
  return {.order = order,
          .stages_per_place = order == PipelineOrder::kInterleaved ? 2 : 1};
}

std::vector<PipeCase> pipe_cases() {
  std::vector<PipeCase> cases;
  for (const PipelineOrder order : kOrders)
    for (int pp : {2, 3, 5})
      for (int dp : {1, 2, 3})
        for (int shard : {0, 1, 2, 3})
          for (bool elastic : {false, true})
            for (bool exact : {false, true})
              if (order != PipelineOrder::kInterleaved || pp < 4)
                cases.push_back({pp, dp, shard, elastic, exact, order});
  return cases;
}

Schedule pipeline(const PipeCase& c, int slices = 7, bool clip = false,
                  bool tensor_sums = false) {
  return generate(seven_blocks(), {.dp = c.dp, .pp = c.pp, .shard = c.shard},
                  {.slices = slices,
                   .pipeline = options_of(c.order),
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
          << c.elastic << " exact " << c.exact << " slices " << slices << " order "
          << static_cast<int>(c.order);
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

// Between the parts of a backward less is kept than before the first, and the same
// memory.
TEST(PipelineGenerator, ABackwardInTwoPartsKeepsForTheSecondWhatItNeeds) {
  const Schedule schedule =
      pipeline({.pp = 2, .dp = 1, .shard = 0, .order = PipelineOrder::kZeroBubble});
  const Role& role = schedule.role_of(1);
  const ValueMemory memory = value_memory(role);
  int64_t held = 0;
  std::map<ActionKind, int64_t> changes;  // by the last block's first slice
  for (size_t i = 0; i < role.actions.size(); ++i) {
    const Action& action = role.actions[i];
    held += memory.takes[i] - memory.frees[i];
    EXPECT_GE(memory.frees[i], 0) << i;
    if (action.block != 6 || action.slice != 0) continue;
    changes[action.kind] = memory.takes[i] - memory.frees[i];
    if (action.kind == ActionKind::kBackwardInput) EXPECT_EQ(memory.takes[i], 0);
  }
  EXPECT_EQ(changes[ActionKind::kForward], 2000);
  EXPECT_EQ(changes[ActionKind::kBackwardInput], -500);
  EXPECT_EQ(changes[ActionKind::kBackwardWeight], -1500);
  EXPECT_GE(held, 0);
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
  const Schedule schedule = pipeline({.pp = 7, .dp = 1, .shard = 0, .elastic = true});
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
  for (const PipelineOrder order : kOrders)
    for (int shard : {0, 3}) {
      const PipelineOptions pipe = options_of(order);
      const Schedule schedule =
          generate(seven_blocks(), {.dp = 2, .pp = 2, .shard = shard},
                   {.slices = 4, .pipeline = pipe, .forward_only = true});
      EXPECT_EQ(refusal(schedule), "accepted");
      EXPECT_EQ(count(schedule.role_of(0))[ActionKind::kSend],
                2 * pipe.stages_per_place);
    }
}

// What travels, and when weights are summed and updated, is no business of an order.
TEST(PipelineGenerator, AGradientIsSentBeforeThoseOfWeights) {
  const Schedule schedule = pipeline({.pp = 3,
                                      .dp = 1,
                                      .shard = 0,
                                      .elastic = false,
                                      .exact = false,
                                      .order = PipelineOrder::kZeroBubble});
  for (int place = 1; place < 3; ++place) {
    const auto& actions = schedule.role_of(place).actions;
    const int first = schedule.stages[place].blocks.front();
    for (size_t i = 0; i + 1 < actions.size(); ++i) {
      if (actions[i].kind != ActionKind::kBackwardInput || actions[i].block != first)
        continue;
      EXPECT_EQ(actions[i + 1].kind, ActionKind::kSend);
    }
  }
}

TEST(PipelineGenerator, StagesAreCutByHand) {
  const Schedule schedule =
      generate(seven_blocks(), {.pp = 2},
               {.slices = 4, .pipeline = parse_pipeline({.cut = "0-4,5-6"})});
  EXPECT_EQ(schedule.stages[0].blocks.size(), 5u);
  EXPECT_EQ(refusal(schedule), "accepted");
}

std::vector<BlockSpec> tied_blocks() {
  auto blocks = seven_blocks();
  blocks[6].parameters.push_back(blocks[0].parameters[0]);
  return blocks;
}

int tied_sums(const Schedule& schedule, int rank) {
  int sums = 0;
  for (const auto& action : schedule.role_of(rank).actions) {
    const Group* const group = schedule.group_of(action.lane);
    sums += group && !group->places.empty();
  }
  return sums;
}

// Gradients of a tied parameter are summed over the places that use it, and all of them
// update it. It needs no second copy: there is one.
TEST(PipelineGenerator, PlacesThatShareAParameterSumItsGradients) {
  for (const PipelineOrder order : kOrders)
    for (const int pp : {1, 2, 3})
      for (const int dp : {1, 2})
        for (const int shard : {0, 1, 2, 3})
          for (const bool elastic : {false, true})
            for (const bool exact : {false, true}) {
              const auto narrow = shard % 2 == 0 ? at::kFloat : at::kBFloat16;
              const Schedule schedule =
                  generate(tied_blocks(), {.dp = dp, .pp = pp, .shard = shard},
                           {.slices = 6,
                            .pipeline = options_of(order),
                            .bucket_bytes = 8 * kChunk,
                            .elastic = elastic,
                            .exact = exact,
                            .precision = {.compute = narrow, .reduce = narrow}});
              EXPECT_EQ(refusal(schedule, {.elastic = elastic}), "accepted")
                  << "pp=" << pp << " dp=" << dp << " shard=" << shard << " elastic "
                  << elastic << " exact " << exact;
              if (pp == 1) continue;
              for (const int rank : {0, schedule.world() - 1})
                EXPECT_EQ(tied_sums(schedule, rank), 1) << "rank " << rank;
              EXPECT_EQ(from_csv(to_csv(schedule)).schedule.hash(), schedule.hash());
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
  EXPECT_THAT(why(seven_blocks(), {.pp = 8}),
              HasSubstr("the model has 7 blocks, which is no stage for each; legal: "
                        "pp=1 to 7"));
}

}  // namespace
}  // namespace cohort
