// SPDX-License-Identifier: Apache-2.0
// Where the plan of a step has its buffers, with step.offload and without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "cohort/step/checker.h"
#include "cohort/step/generator.h"
#include "cohort/step/memory_plan.h"

namespace cohort {
namespace {

using Holds = Buffer::Holds;
using Memory = Buffer::Memory;

std::vector<BlockSpec> four_blocks() {
  std::vector<BlockSpec> blocks;
  for (int b = 0; b < 4; ++b)
    blocks.push_back(
        {.name = "b" + std::to_string(b),
         .parameters = {
             {.name = "w" + std::to_string(b), .shape = {3000}, .end = 3000}}});
  return blocks;
}

struct OffloadCase {
  Layout layout = {.dp = 1};
  GeneratorOptions options = {};
};

Schedule planned_step(OffloadCase c) {
  c.options.memory = MemoryIn::kDevice;
  c.options.slices = 2 * c.layout.dp;
  c.options.bucket_bytes = 1;
  c.options.optimizer_states = 2;
  return generate(four_blocks(), c.layout, c.options);
}

std::set<Holds> on_host(const Schedule& schedule) {
  std::set<Holds> kinds;
  for (const auto& buffer : schedule.buffers)
    if (buffer.memory == Memory::kHost) kinds.insert(buffer.holds);
  return kinds;
}

constexpr Precision kBf16{.compute = at::kBFloat16, .reduce = at::kBFloat16};

TEST(Offload, MovesWhatUpdatesAloneReadAndWrite) {
  for (const int shard : {0, 1, 2, 3}) {
    const OffloadCase wide{{.dp = 2, .shard = shard}, {.offload = true}};
    EXPECT_EQ(on_host(planned_step(wide)), std::set{Holds::kMoment}) << shard;
    const OffloadCase narrow{{.dp = 2, .shard = shard},
                             {.offload = true, .precision = kBf16}};
    EXPECT_EQ(on_host(planned_step(narrow)), (std::set{Holds::kMaster, Holds::kMoment}))
        << shard;
  }
}

TEST(Offload, MovesSecondCopiesButNoSums) {
  const OffloadCase c{{.dp = 3, .shard = 2}, {.elastic = true, .offload = true}};
  EXPECT_EQ(on_host(planned_step(c)),
            (std::set{Holds::kMoment, Holds::kMirrorMaster, Holds::kMirrorMoment}));
}

TEST(Offload, OfParametersMovesTheSharesThatAreGathered) {
  for (const int ranks : {1, 3}) {
    const Schedule wide = planned_step({{.dp = ranks}, {.offload_parameters = true}});
    EXPECT_EQ(on_host(wide), (std::set{Holds::kMaster, Holds::kMoment}));
    EXPECT_TRUE(gathers_from_host(wide, 0));
    const Schedule narrow =
        planned_step({{.dp = ranks}, {.offload_parameters = true, .precision = kBf16}});
    EXPECT_EQ(on_host(narrow),
              (std::set{Holds::kMaster, Holds::kTravelling, Holds::kMoment}));
    EXPECT_TRUE(gathers_from_host(narrow, 0));
  }
  const Schedule shared = planned_step({{.dp = 3, .shard = 3}, {.offload = true}});
  EXPECT_NE(gathered_shard(shared, 0), nullptr);
  EXPECT_FALSE(gathers_from_host(shared, 0));
}

// The same list, so the same bits.
TEST(Offload, OfTheOptimizerChangesNoAction) {
  for (const int shard : {0, 1, 2, 3}) {
    OffloadCase c{{.dp = 3, .shard = shard}, {.clip = true, .elastic = true}};
    const std::string without = planned_step(c).text();
    c.options.offload = true;
    EXPECT_EQ(planned_step(c).text(), without) << shard;
  }
}

// Copies that nobody shares are no copies, so parameters are cut between all ranks.
TEST(Offload, OfParametersCutsBucketsEvenly) {
  const Schedule schedule = planned_step(
      {{.dp = 2, .shard = 3, .replicate = 2}, {.offload_parameters = true}});
  for (const auto& bucket : schedule.buckets)
    EXPECT_EQ(bucket.numel % (schedule.mesh.size(Axis::kCut) * kChunk), 0);
}

TEST(Offload, IsCountedAtEachPlace) {
  const RolePeak none = check(planned_step({})).largest();
  EXPECT_EQ(none.on_host(), 0);
  const Schedule schedule = planned_step({.options = {.offload = true}});
  const RolePeak moved = check(schedule).largest();
  EXPECT_EQ(moved.on_host(), 4 * 3 * kChunk * 2 * 4);  // two states of four buckets
  EXPECT_EQ(moved.on_device + moved.on_host(), none.on_device);
}

TEST(Offload, IsRightAlongAPipelineToo) {
  for (const int dp : {1, 2})
    for (const bool elastic : {false, true})
      for (const bool parameters : {false, true}) {
        const Schedule schedule = planned_step({{.dp = dp, .pp = 2},
                                                {.elastic = elastic,
                                                 .offload = !parameters,
                                                 .offload_parameters = parameters}});
        EXPECT_NO_THROW(check(schedule, {.elastic = elastic})) << dp << parameters;
        EXPECT_TRUE(on_host(schedule).contains(Holds::kMoment));
      }
}

}  // namespace
}  // namespace cohort
