// SPDX-License-Identifier: Apache-2.0
// Steps that the ranks that are left can finish: what is written, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/step/declare.h"
#include "cohort/step/derive.h"
#include "cohort/step/generator.h"
#include "cohort/step/testing_schedule.h"

namespace cohort {
namespace {

using test::count;
using test::find;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

std::vector<BlockSpec> blocks() {
  std::vector<BlockSpec> blocks;
  for (int64_t numel : {3000, 200, 3000}) {
    BlockSpec block{.name = text("b", blocks.size())};
    block.parameters = {{.name = block.name + ".w", .shape = {numel}, .end = numel}};
    block.keeps_statistics = blocks.size() == 1;
    blocks.push_back(std::move(block));
  }
  return blocks;
}

std::string elastic_refusal(const Schedule& schedule) {
  return test::refusal(schedule, {.elastic = true});
}

// What is behind the Vote may be lost: nothing there is needed of others but parameters
// that are whole in their owners' memory.
TEST(ElasticSchedule, OnlyParametersTravelBehindTheVote) {
  for (int shard = 0; shard <= 3; ++shard) {
    const auto schedule =
        generate(blocks(), {.dp = 3, .shard = shard},
                 {.slices = 5, .bucket_bytes = 4 * kChunk, .elastic = true});
    EXPECT_TRUE(schedule.elastic);
    EXPECT_EQ(has_mirrors(schedule), shard > 0);
    for (const auto& role : schedule.roles) {
      auto counts = count(role);
      EXPECT_EQ(counts[ActionKind::kVote], 1);
      EXPECT_EQ(counts[ActionKind::kFoldBuffers], 1);
      EXPECT_EQ(counts[ActionKind::kMirror],
                shard > 0 ? counts[ActionKind::kUpdate] : 0);
      bool voted = false;
      for (const auto& action : role.actions) {
        if (voted && action.lane != kComputeLane) {
          EXPECT_EQ(action.kind, ActionKind::kGather);
        }
        voted |= action.kind == ActionKind::kVote;
      }
    }
  }
}

TEST(ElasticSchedule, HasAHashOfItsOwn) {
  const auto hash = [](bool elastic) {
    return generate(blocks(), {.dp = 2},
                    {.slices = 2, .vote = true, .elastic = elastic})
        .hash();
  };
  EXPECT_NE(hash(true), hash(false));
}

// With sharded state and statistics, where only the list says so.
Schedule elastic_step(int shard) {
  return test::bare(
      generate(blocks(), {.dp = 3, .shard = shard},
               {.slices = 4, .bucket_bytes = 4 * kChunk, .elastic = true}));
}

TEST(ElasticSchedule, ElasticNeedsAMirrorOfEveryShare) {
  for (int shard : {1, 2, 3}) {
    const Schedule plain =
        generate(blocks(), {.dp = 3, .shard = shard}, {.slices = 4, .vote = true});
    EXPECT_THAT(elastic_refusal(plain), HasSubstr("no Mirror"));
    Schedule twice = elastic_step(shard);
    Role& role = twice.roles[0];
    role.actions[find(role, ActionKind::kMirror, 0)].buckets = {1};
    EXPECT_THAT(elastic_refusal(twice), HasSubstr("Mirror bucket 1: R1: was done"));
  }
  const Schedule copies = generate(blocks(), {.dp = 4, .shard = 2, .replicate = 2},
                                   {.slices = 4, .elastic = true});
  EXPECT_EQ(elastic_refusal(copies), "accepted");
  for (const auto& action : copies.roles[0].actions)
    EXPECT_NE(action.kind, ActionKind::kMirror);
}

// Parts of tensors that nobody else has are handed on like shards.
TEST(ElasticSchedule, ElasticNeedsAMirrorOfEveryPart) {
  const GeneratorOptions options{
      .slices = 4, .bucket_bytes = 4 * kChunk, .vote = true, .elastic = true};
  const Schedule parts = generate(blocks(), Layout{.tp = 3}, options);
  EXPECT_EQ(elastic_refusal(parts), "accepted");
  EXPECT_EQ(mirror_axis(parts), Axis::kTensor);
  auto counts = count(parts.roles[0]);
  EXPECT_EQ(counts[ActionKind::kMirror], counts[ActionKind::kUpdate]);
  EXPECT_THAT(
      elastic_refusal(generate(blocks(), {.tp = 3}, {.slices = 4, .vote = true})),
      HasSubstr("no Mirror"));
  // Replicas, and the next stage, have them, too.
  for (const Layout& layout : {Layout{.dp = 2, .tp = 2}, Layout{.tp = 2, .pp = 2}}) {
    const Schedule other = generate(blocks(), layout, options);
    EXPECT_EQ(elastic_refusal(other), "accepted");
    EXPECT_EQ(count(other.roles[0])[ActionKind::kMirror], 0);
    EXPECT_EQ(has_mirrors(other), layout.pp > 1);
  }
}

TEST(ElasticSchedule, TheVoteWaitsForMirrorsAndStatistics) {
  for (int shard : {1, 2, 3})
    for (ActionKind kind : {ActionKind::kMirror, ActionKind::kFoldBuffers}) {
      Schedule schedule = elastic_step(shard);
      ASSERT_EQ(elastic_refusal(schedule), "accepted");
      for (Role& role : schedule.roles) {
        const int vote = find(role, ActionKind::kVote);
        Action late = role.actions[vote];
        late.kind = kind;
        late.bytes = 0;
        if (kind == ActionKind::kMirror) late.buckets = {0};
        role.actions[find(role, kind)].kind = ActionKind::kVote;
        role.actions[find(role, ActionKind::kVote)].buckets.clear();
        role.actions[vote] = late;
      }
      declare_by_kinds(schedule);
      for (Role& role : schedule.roles) derive_waits(role.actions, schedule.lanes());
      EXPECT_THAT(elastic_refusal(schedule), HasSubstr(": R9: "))
          << shard << ' ' << name_of(kind);
    }
}

TEST(ElasticSchedule, AMirrorComesBetweenTheSumAndItsUpdate) {
  Schedule schedule = elastic_step(1);
  Role& role = schedule.roles[0];
  role.actions[find(role, ActionKind::kMirror)].waits.clear();
  EXPECT_EQ(elastic_refusal(schedule), "accepted");  // its lane is in order
  std::swap(role.actions[find(role, ActionKind::kMirror)].kind,
            role.actions[find(role, ActionKind::kReduceScatter)].kind);
  declare_by_kinds(schedule);
  EXPECT_THAT(elastic_refusal(schedule),
              HasSubstr("Mirror bucket 0: R2: does not read Sum 0"));
}

}  // namespace
}  // namespace cohort
