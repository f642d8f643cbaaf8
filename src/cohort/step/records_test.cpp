// SPDX-License-Identifier: Apache-2.0
// Records that contradict what actions do: a schedule from a file may say anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/step/derive.h"
#include "cohort/step/generator.h"
#include "cohort/step/testing_pipeline.h"
#include "cohort/step/testing_schedule.h"

namespace cohort {
namespace {

using test::refusal;
using testing::HasSubstr;

Schedule pipeline() {
  return test::make({.places = 4,
                     .slices = 4,
                     .ends = {1, 2, 3, 4},
                     .order = test::one_forward_one_backward});
}

Schedule cut_parameters() {
  std::vector<BlockSpec> blocks(2);
  for (int b = 0; b < 2; ++b)
    blocks[b] = {.name = text("block ", b),
                 .parameters = {{.name = text("w", b), .shape = {2000}, .end = 2000}}};
  return generate(blocks, {.dp = 2, .shard = 3}, {.slices = 2});
}

TEST(Records, ABufferFitsWhatIsPutIntoIt) {
  Schedule schedule = pipeline();
  for (auto& buffer : schedule.buffers) buffer.numel = 1;
  EXPECT_THAT(refusal(schedule), HasSubstr("of 1 bytes; legal: at least 1000"));
  schedule = cut_parameters();
  for (auto& buffer : schedule.buffers)
    if (buffer.holds == Buffer::Holds::kGathered) buffer.numel = 10;
  EXPECT_THAT(refusal(schedule), HasSubstr("R3: has Whole"));
}

TEST(Records, ABufferIsForOneKindOfValue) {
  Schedule schedule = cut_parameters();
  for (auto& buffer : schedule.buffers)
    if (buffer.holds == Buffer::Holds::kSlot) buffer.holds = Buffer::Holds::kMaster;
  EXPECT_THAT(refusal(schedule), HasSubstr("which is for master; legal: slot"));
}

TEST(Records, AReaderNamesTheBufferOfTheWriter) {
  Schedule schedule = pipeline();
  for (auto& action : schedule.roles[1].actions)
    if (action.kind == ActionKind::kForward) action.reads[0].buffer = kNone;
  EXPECT_THAT(refusal(schedule), HasSubstr("R2: reads Act 0 slice 0 where it is not"));
}

TEST(Records, BuffersDoNotOverflow) {
  Schedule schedule = pipeline();
  for (auto& buffer : schedule.buffers)
    buffer.dtype = at::kDouble, buffer.numel = int64_t{1} << 57;
  EXPECT_THAT(refusal(schedule), HasSubstr("bytes; legal: at most so many"));
}

TEST(Records, OnlyMembersCallAGroup) {
  Schedule schedule = pipeline();
  schedule.groups[0].places = {0, 1, 2};
  EXPECT_THAT(refusal(schedule), HasSubstr("R4: is a call of group all"));
  schedule.groups[0].places = {0, 9};
  EXPECT_THAT(refusal(schedule), HasSubstr("group all is at place 9; legal: of 4"));
  schedule.groups[0].places = {0, 0, 1, 2, 3};
  EXPECT_THAT(refusal(schedule), HasSubstr("in ascending order"));
}

// Two places use one bucket, and each updates it by what it has.
TEST(Records, TiedParametersAreSummedAlongThePipeline) {
  Schedule schedule = pipeline();
  for (auto& action : schedule.roles[1].actions) {
    for (int& bucket : action.buckets)
      if (bucket == 1) bucket = 0;
    for (auto* accesses : {&action.reads, &action.writes})
      for (auto& access : *accesses) {
        const What what = access.value.what;
        if (what == What::kWhole || what == What::kPartial || what == What::kState)
          access.value.of = 0;
      }
  }
  EXPECT_THAT(refusal(schedule), HasSubstr("R7: reads Partial 0"));
  EXPECT_THAT(refusal(schedule), HasSubstr("not summed along pp"));
}

TEST(Records, ACommitNamesWhatHasAGradient) {
  Schedule schedule = pipeline();
  auto& actions = schedule.roles[0].actions;
  actions.erase(actions.begin() + test::find(schedule.roles[0], ActionKind::kUpdate));
  std::erase_if(actions.back().reads, [](const Access& access) {
    return access.value.what == What::kState || access.value.what == What::kWhole;
  });
  actions.back().buckets.clear();
  derive_waits(actions, schedule.lanes());
  EXPECT_THAT(refusal(schedule), HasSubstr("R13: does not name bucket 0"));
}

TEST(Records, BucketsAreListed) {
  Schedule schedule = pipeline();
  schedule.buckets.pop_back();
  EXPECT_THAT(refusal(schedule), HasSubstr("bucket 3 is named; legal: one of 3"));
}

}  // namespace
}  // namespace cohort
