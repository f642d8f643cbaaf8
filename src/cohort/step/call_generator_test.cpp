// SPDX-License-Identifier: Apache-2.0
// Collectives inside blocks, as generators write them into the step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/step/generator.h"
#include "cohort/step/schedule_csv.h"
#include "cohort/step/testing_schedule.h"

namespace cohort {
namespace {

using test::refusal;
using testing::HasSubstr;
using When = BlockCall::When;

// The second of four blocks communicates: twice in forward, once in backward.
std::vector<BlockSpec> calling_blocks() {
  std::vector<BlockSpec> blocks;
  for (int b = 0; b < 4; ++b) {
    const std::string name = "b" + std::to_string(b);
    blocks.push_back({.name = name,
                      .parameters = {{.name = name + ".w", .shape = {900}, .end = 900}},
                      .activation_bytes = 2000,
                      .output_bytes = 1000,
                      .cost = 1});
  }
  blocks[1].calls = {{.when = When::kForward, .dtype = at::kDouble, .numel = 6},
                     {.when = When::kForward, .op = CallOp::kAllGather, .numel = 10},
                     {.when = When::kBackward, .numel = 4},
                     {.when = When::kEvaluate, .numel = 5}};
  return blocks;
}

struct CallCase {
  int dp, pp, shard;
  bool elastic;
};

class CallsInSteps : public testing::TestWithParam<CallCase> {};

TEST_P(CallsInSteps, AreWrittenIntoForwardRecomputeAndBackward) {
  const auto [dp, pp, shard, elastic] = GetParam();
  const Schedule schedule =
      generate(calling_blocks(), {.dp = dp, .pp = pp, .shard = shard},
               {.slices = 2 * dp, .elastic = elastic, .recompute = true});
  EXPECT_EQ(refusal(schedule, {.elastic = elastic}), "accepted");
  const int group = schedule.group_along(kDataAxes);
  const std::vector<InnerCall> forward = {{group, CallOp::kAllReduce, 48},
                                          {group, CallOp::kAllGather, 40 * dp}};
  const std::vector<InnerCall> backward = {{group, CallOp::kAllReduce, 16}};
  int found = 0;
  for (const auto& role : schedule.roles)
    for (const auto& action : role.actions) {
      const bool calls = action.block == 1 && dp > 1;
      const bool back = action.kind == ActionKind::kBackward;
      const std::vector<InnerCall> none;
      EXPECT_EQ(action.calls, !calls ? none : back ? backward : forward);
      found += calls;
    }
  EXPECT_EQ(found > 0, dp > 1);
}

TEST_P(CallsInSteps, AreInFilesAndInTheHashThatRanksCompare) {
  const auto [dp, pp, shard, elastic] = GetParam();
  const Layout layout{.dp = dp, .pp = pp, .shard = shard};
  const GeneratorOptions options{.slices = dp, .elastic = elastic};
  const Schedule schedule = generate(calling_blocks(), layout, options);
  const Schedule back = from_csv(to_csv(schedule)).schedule;
  for (size_t r = 0; r < schedule.roles.size(); ++r)
    for (size_t i = 0; i < schedule.roles[r].actions.size(); ++i)
      EXPECT_EQ(back.roles[r].actions[i].calls, schedule.roles[r].actions[i].calls);
  auto others = calling_blocks();
  others[1].calls[2].numel = 8;
  EXPECT_EQ(generate(others, layout, options).hash() != schedule.hash(), dp > 1);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, CallsInSteps,
    testing::Values(CallCase{1, 1, 0, false}, CallCase{2, 1, 0, false},
                    CallCase{3, 1, 1, true}, CallCase{2, 1, 2, false},
                    CallCase{3, 1, 3, true}, CallCase{2, 2, 0, true},
                    CallCase{2, 2, 3, false}, CallCase{1, 2, 0, true}),
    [](const auto& info) {
      const CallCase& c = info.param;
      return text("dp", c.dp, "_pp", c.pp, "_shard", c.shard,
                  c.elastic ? "_elastic" : "");
    });

TEST(CallsInSteps, EvaluationHasItsOwn) {
  const Schedule schedule =
      generate(calling_blocks(), {.dp = 3}, {.slices = 3, .forward_only = true});
  for (const auto& action : schedule.roles[0].actions)
    if (action.block == 1) {
      EXPECT_EQ(action.calls, (std::vector<InnerCall>{{0, CallOp::kAllReduce, 20}}));
    }
}

std::string refused_calls(const std::vector<BlockSpec>& blocks, const Layout& layout,
                          const GeneratorOptions& options) {
  return test::message_of<ConfigError>([&] { generate(blocks, layout, options); });
}

TEST(CallsInSteps, WhatCannotBeIsRefusedInOneLine) {
  EXPECT_EQ(refused_calls(calling_blocks(), {.dp = 3}, {.slices = 4}),
            "[step] block b1 calls AllReduce of 6 Double over replicate,cut inside its "
            "forward, which all ranks make together; legal: slices=3 or a multiple of "
            "it, not 4");
  EXPECT_THAT(
      refused_calls(calling_blocks(), {.dp = 2}, {.slices = 2, .exact = true}),
      HasSubstr("so its results depend on the number of ranks; legal: a run without "
                "--exact"));
  auto blocks = calling_blocks();
  blocks[1].calls[0].per_sample = 7;
  EXPECT_THAT(refused_calls(blocks, {.dp = 2}, {.slices = 2}),
              HasSubstr("legal: one size for all"));
  blocks = calling_blocks();
  blocks[1].calls[0].axes = {Axis::kCut};
  EXPECT_THAT(
      refused_calls(blocks, {.dp = 4, .shard = 1, .replicate = 2}, {.slices = 4}),
      "no error");
  EXPECT_THAT(refused_calls(blocks, {.dp = 2}, {.slices = 2}),
              HasSubstr("there is no group"));
}

}  // namespace
}  // namespace cohort
