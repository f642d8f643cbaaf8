// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/step/memory_plan.h"
#include "cohort/step/testing_schedule.h"

namespace cohort {
namespace {

using test::count;

std::vector<BlockSpec> blocks_of(std::vector<int64_t> numels) {
  std::vector<BlockSpec> blocks;
  for (int64_t numel : numels) {
    BlockSpec block{.name = "b" + std::to_string(blocks.size())};
    if (numel > 0)
      block.parameters = {{.name = block.name + ".w", .shape = {numel}, .end = numel}};
    blocks.push_back(std::move(block));
  }
  return blocks;
}

class DataParallelSchedule : public testing::TestWithParam<int> {};

TEST_P(DataParallelSchedule, ComputesEverySliceOfTheBatchOnce) {
  const int ranks = GetParam();
  const auto schedule =
      generate(blocks_of({100, 200, 300}), {.dp = ranks}, {.slices = 8});
  int slices = 0;
  for (int r = 0; r < ranks; ++r) {
    const Role& role = schedule.role_of(r);
    slices += role.slices;
    EXPECT_EQ(count(role)[ActionKind::kForward], 3 * role.slices);
    EXPECT_EQ(count(role)[ActionKind::kBackward], 3 * role.slices);
  }
  EXPECT_EQ(slices, 8);
}

TEST_P(DataParallelSchedule, ReducesEachBucketOnceBeforeItsUpdate) {
  const int ranks = GetParam();
  const auto schedule = generate(blocks_of({100, 0, 200, 300}), {.dp = ranks},
                                 {.slices = 8, .bucket_bytes = 8 * kChunk});
  ASSERT_EQ(schedule.buckets.size(), 2u);
  for (const auto& role : schedule.roles) {
    std::map<int, int> reduced;
    for (const auto& action : role.actions) {
      if (action.kind == ActionKind::kReduce) ++reduced[action.buckets.at(0)];
      if (action.kind == ActionKind::kUpdate && ranks > 1) {
        EXPECT_EQ(reduced[action.buckets.at(0)], 1);
      }
    }
    EXPECT_EQ(reduced.size(), ranks > 1 ? 3u : 0u);  // and the loss
    EXPECT_EQ(role.actions.back().kind, ActionKind::kCommit);
  }
}

TEST_P(DataParallelSchedule, SumsOverTensorsAreMadeBeforeAnyUpdate) {
  for (int shard : {0, 1, 2, 3}) {
    const auto schedule =
        generate(blocks_of({100, 200, 300}), {.dp = GetParam(), .shard = shard},
                 {.slices = 8,
                  .bucket_bytes = 4 * kChunk,
                  .tensor_sums = true,
                  .shares_memory = true});
    EXPECT_EQ(test::refusal(schedule), "accepted");
    for (const auto& role : schedule.roles) {
      EXPECT_EQ(count(role)[ActionKind::kNorm], 1);
      EXPECT_EQ(count(role)[ActionKind::kReduceUpdate], 0);
      EXPECT_LT(test::find(role, ActionKind::kNorm),
                test::find(role, ActionKind::kUpdate));
      std::set<int> states;
      for (const auto& access : role.actions[test::find(role, ActionKind::kNorm)].reads)
        if (access.value.what == What::kState) states.insert(access.value.of);
      EXPECT_EQ(states.size(), schedule.buckets.size());
    }
  }
}

TEST_P(DataParallelSchedule, WaitsOnlyForEarlierActions) {
  const auto schedule =
      generate(blocks_of({64, 64, 64}), {.dp = GetParam()}, {.slices = 8});
  for (const auto& role : schedule.roles)
    for (size_t i = 0; i < role.actions.size(); ++i)
      for (int wait : role.actions[i].waits) {
        EXPECT_GE(wait, 0);
        EXPECT_LT(wait, static_cast<int>(i));
      }
}

INSTANTIATE_TEST_SUITE_P(Worlds, DataParallelSchedule, testing::Values(1, 2, 3, 5, 8));

TEST(Schedule, RanksWithEqualListsShareARole) {
  const auto schedule = generate(blocks_of({10}), {.dp = 3}, {.slices = 8});
  ASSERT_EQ(schedule.roles.size(), 2u);
  EXPECT_THAT(schedule.role_of(0).ranks, testing::ElementsAre(0));
  EXPECT_THAT(schedule.role_of(2).ranks, testing::ElementsAre(1, 2));
}

TEST(Schedule, HashTellsSchedulesApart) {
  const auto base = generate(blocks_of({10, 20}), {.dp = 2}, {.slices = 2});
  const auto same = generate(blocks_of({10, 20}), {.dp = 2}, {.slices = 2});
  const auto other = generate(blocks_of({10, 4000}), {.dp = 2}, {.slices = 2});
  EXPECT_EQ(base.hash(), same.hash());
  EXPECT_NE(base.hash(), other.hash());
}

TEST(Generator, BucketsFollowBackwardAndKeepTheLimit) {
  const auto schedule = generate(blocks_of({100, 200, 300}), {.dp = 1},
                                 {.slices = 1, .bucket_bytes = 4 * 2048});
  ASSERT_EQ(schedule.buckets.size(), 2u);
  EXPECT_THAT(schedule.buckets[0].blocks, testing::ElementsAre(2, 1));
  EXPECT_EQ(schedule.buckets[0].numel, 2 * kChunk);
  EXPECT_THAT(schedule.buckets[1].blocks, testing::ElementsAre(0));
}

TEST(Generator, ASharedParameterHasABucketOfItsOwn) {
  auto blocks = blocks_of({100, 200, 300});
  blocks[2].parameters.push_back(blocks[0].parameters[0]);
  const auto schedule = generate(blocks, {.dp = 1}, {.slices = 1, .bucket_bytes = 1});
  ASSERT_EQ(schedule.buckets.size(), 3u);
  EXPECT_THAT(schedule.buckets[2].blocks, testing::ElementsAre(0, 2));
  EXPECT_THAT(schedule.roles[0].actions[0].buckets, testing::ElementsAre(2));
  EXPECT_THAT(schedule.roles[0].actions[2].buckets, testing::ElementsAre(0, 2));
}

TEST(Generator, WhatIsJoinedTakesNoMemory) {
  const auto takes = [](at::ScalarType compute, int64_t join_alignment) {
    const auto schedule =
        generate(blocks_of({kChunk, 4 * kChunk}), {.dp = 2, .shard = 3},
                 {.slices = 2,
                  .precision = {.compute = compute},
                  .join_alignment = join_alignment});
    std::vector<int64_t> bytes;
    for (const Buffer* buffer : planned(schedule, Buffer::Holds::kGathered))
      bytes.push_back(buffer->bytes());
    return bytes;
  };
  using testing::ElementsAre;
  EXPECT_THAT(takes(at::kFloat, 0), ElementsAre(4 * 4 * kChunk, 4 * 4 * kChunk));
  EXPECT_THAT(takes(at::kFloat, 4096), ElementsAre());
  // A shard of one chunk in bfloat16 is half a page.
  EXPECT_THAT(takes(at::kBFloat16, 4096), ElementsAre(2 * 4 * kChunk));
}

TEST(Generator, MoreRanksThanSlicesIsRefused) {
  EXPECT_THROW(generate(blocks_of({10}), {.dp = 3}, {.slices = 2}), ConfigError);
}

TEST(Generator, LayoutsWithoutAGeneratorAreRefused) {
  EXPECT_THROW(
      generate(blocks_of({10}), {.dp = 3, .shard = 1, .replicate = 2}, {.slices = 3}),
      ConfigError);
  EXPECT_THROW(generate(blocks_of({10}), {.dp = 2, .replicate = 2}, {.slices = 2}),
               ConfigError);
}

// Whether a layout can be had is asked before there is a model.
TEST(Generator, AModelWithoutBlocksHasAStep) {
  for (const int shard : {0, 3}) {
    const auto schedule = generate({}, {.dp = 2, .shard = shard}, {.slices = 2});
    EXPECT_EQ(schedule.role_of(1).actions.back().kind, ActionKind::kCommit);
  }
}

TEST(Recompute, IsOfTheBlocksThatAreChosen) {
  for (const int shard : {0, 3}) {
    const auto schedule = generate(
        blocks_of({100, 200, 300, 400}), {.dp = 3, .shard = shard},
        {.slices = 6, .recompute = BlockChoice::parse("blocks=0,2-3", "test")});
    std::map<int, int> recomputes;
    for (const auto& action : schedule.role_of(1).actions)
      if (action.kind == ActionKind::kRecompute) ++recomputes[action.block];
    EXPECT_EQ(recomputes, (std::map<int, int>{{0, 2}, {2, 2}, {3, 2}})) << shard;
  }
}

TEST(Recompute, OfABlockThatIsNotThereIsRefused) {
  EXPECT_THAT(test::message_of<ConfigError>([&] {
                generate(blocks_of({100, 200}), {.dp = 1},
                         {.recompute = BlockChoice::parse("blocks=2", "test")});
              }),
              testing::HasSubstr("step.recompute=blocks=2 names block "
                                 "2; legal: 0 to 1"));
}

TEST(Generator, RefusesAxesThatNoLayerHas) {
  const auto why = [](const Layout& layout) {
    return test::message_of<ConfigError>(
        [&] { generate(blocks_of({100}), layout, {.slices = 4}); });
  };
  EXPECT_THAT(why({.dp = 2, .cp = 2}), testing::HasSubstr("legal: cp=1"));
  EXPECT_THAT(why({.dp = 2, .ep = 2}), testing::HasSubstr("legal: ep=1"));
}

}  // namespace
}  // namespace cohort
