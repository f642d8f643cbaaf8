// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/step_memory.h"

#include <gtest/gtest.h>

#include "cohort/nn/models.h"
#include "cohort/step/generator.h"

namespace cohort {
namespace {

constexpr MemoryParts kParts{
    .state = 1000, .activations = 200, .gradients = 30, .parameters = 4, .scratch = 5};

Schedule schedule_of(int ranks, int shard) {
  const Chain chain = make_mlp({.inputs = 8, .width = 8, .depth = 2}, {});
  return generate(specs_of(chain), {.dp = ranks, .shard = shard}, {.slices = ranks});
}

int64_t parameter_bytes(const Schedule& schedule) {
  int64_t sum = 0;
  for (const auto& bucket : schedule.buckets) sum += bucket.numel * 4;
  return sum;
}

TEST(StepMemory, OfARankOnTheHostIsAllThere) {
  const PlacedMemory memory = placed(schedule_of(2, 0), kParts, {});
  EXPECT_EQ(memory.host, kParts.total());
  EXPECT_EQ(memory.gpu, 0);
}

TEST(StepMemory, OfAStepThatIsOneGraphIsAllOnTheGpu) {
  const PlacedMemory memory =
      placed(schedule_of(1, 0), kParts, {.compute_on = ComputeOn::kCuda});
  EXPECT_EQ(memory.host, 0);
  EXPECT_EQ(memory.gpu, kParts.total());
}

TEST(StepMemory, OfSeveralRanksOnGpusHasItsStateOnTheHost) {
  for (int shard : {0, 1}) {
    const Schedule schedule = schedule_of(3, shard);
    const PlacedMemory memory =
        placed(schedule, kParts, {.compute_on = ComputeOn::kCuda});
    EXPECT_EQ(memory.host, 1000 + 30 + 4) << shard;
    EXPECT_EQ(memory.gpu, 200 + 5 + 2 * parameter_bytes(schedule)) << shard;
  }
}

TEST(StepMemory, OfCutParametersIsOnTheGpuOnlyWhatIsGathered) {
  const Schedule schedule = schedule_of(3, 3);
  const PlacedMemory memory =
      placed(schedule, kParts, {.compute_on = ComputeOn::kCuda});
  EXPECT_EQ(memory.host, 1000 + 30 + 4);
  EXPECT_LT(memory.gpu, 200 + 5 + 4 + parameter_bytes(schedule) + 1);
  EXPECT_GT(memory.gpu, 200 + 5 + 4);
}

TEST(StepMemory, OfOneKindIsNoHelpForTheOther) {
  const PlacedMemory need{.host = 10, .gpu = 20};
  EXPECT_TRUE(need.fits({.host = 10, .gpu = 20}));
  EXPECT_FALSE(need.fits({.host = 100, .gpu = 19}));
  EXPECT_FALSE(need.fits({.host = 9, .gpu = 100}));
  EXPECT_EQ(need.text(), "20 B of the GPU's memory and 10 B of the host's");
  EXPECT_EQ((PlacedMemory{.host = 10}).text(), "10 B");
}

}  // namespace
}  // namespace cohort
