// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/run_ahead.h"

#include <gtest/gtest.h>

#include <set>

#include "cohort/step/generator.h"
#include "cohort/step/testing_schedule.h"

namespace cohort {
namespace {

std::vector<BlockSpec> blocks_in_a_row() {
  std::vector<BlockSpec> blocks;
  for (int64_t numel : {3000, 200, 3000, 900}) {
    BlockSpec block{.name = text("b", blocks.size())};
    block.parameters = {{.name = block.name + ".w", .shape = {numel}, .end = numel}};
    block.keeps_statistics = blocks.size() == 1;
    blocks.push_back(std::move(block));
  }
  return blocks;
}

std::vector<Schedule> every_elastic_layout() {
  std::vector<Schedule> all;
  for (const auto memory : {MemoryIn::kHost, MemoryIn::kDevice})
    for (const bool exact : {false, true})
      for (int shard = 0; shard <= 3; ++shard) {
        const GeneratorOptions options{.slices = 4,
                                       .bucket_bytes = 4 * kChunk,
                                       .clip = true,
                                       .elastic = true,
                                       .exact = exact,
                                       .memory = memory};
        std::vector<Layout> layouts = {{.dp = 1, .shard = shard},
                                       {.dp = 3, .shard = shard}};
        if (shard > 0) layouts.push_back({.dp = 4, .shard = shard, .replicate = 2});
        if (shard == 0) layouts.push_back({.dp = 1, .pp = 2});
        if (shard == 0) layouts.push_back({.dp = 2, .pp = 2});
        for (const auto& layout : layouts)
          all.push_back(generate(blocks_in_a_row(), layout, options));
      }
  return all;
}

// A Recv of a gradient is of its peer's backward.
int first_of_backward(const Role& role) {
  for (int i = 0; i < static_cast<int>(role.actions.size()); ++i) {
    const Action& action = role.actions[i];
    const bool takes_gradient = action.kind == ActionKind::kRecv &&
                                action.writes[0].value.what == What::kActGrad;
    if (takes_gradient || action.kind == ActionKind::kBackward) return i;
  }
  return kNone;
}

// Judged by what each kind is for: nothing of the end of a step, and no gradient.
TEST(ActionsAhead, OnlyForwardsAndWhatTheyNeedComeBeforeTheLastStepIsKnown) {
  const std::set<ActionKind> harmless = {ActionKind::kForward, ActionKind::kRecompute,
                                         ActionKind::kGather,  ActionKind::kFree,
                                         ActionKind::kSend,    ActionKind::kRecv};
  for (const auto& schedule : every_elastic_layout())
    for (const auto& role : schedule.roles) {
      SCOPED_TRACE(testing::Message() << schedule.mesh.text() << " shard "
                                      << schedule.shard << " exact " << schedule.exact);
      const int ahead = actions_ahead(role);
      EXPECT_EQ(ahead, first_of_backward(role));
      EXPECT_LE(test::find(role, ActionKind::kForward), ahead);
      for (int i = 0; i < ahead; ++i) {
        const Action& action = role.actions[i];
        const bool sums_loss = action.buckets == std::vector{kLossBucket};
        EXPECT_TRUE(sums_loss || harmless.contains(action.kind))
            << i << ' ' << name_of(action.kind);
      }
    }
}

// What lies in one memory is written at once, whatever it is called.
TEST(ActionsAhead, MemoryThatTheLastStepIsFinishedWithIsNotWritten) {
  Role role;
  const Access sum{{What::kSum, 0}, /*buffer=*/3};
  const Access folded{{What::kFolded}};
  const Access loss{{What::kLoss, kNone, 0}};
  role.actions = {
      {.kind = ActionKind::kForward, .writes = {loss}},
      {.kind = ActionKind::kForward, .writes = {{{What::kLeaf, 1}, /*buffer=*/4}}},
      {.kind = ActionKind::kForward, .writes = {{{What::kLeaf, 1}, /*buffer=*/3}}},
      {.kind = ActionKind::kBackward},
      {.kind = ActionKind::kUpdate, .reads = {sum, loss}},
      {.kind = ActionKind::kCommit, .reads = {folded, loss}}};
  EXPECT_EQ(actions_ahead(role), 2);
  role.actions[1].writes = {{{What::kFolded, kNone, kNone, /*version=*/1}}};
  EXPECT_EQ(actions_ahead(role), 1);
}

}  // namespace
}  // namespace cohort
