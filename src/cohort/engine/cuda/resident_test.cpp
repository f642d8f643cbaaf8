// SPDX-License-Identifier: Apache-2.0
// An executor of one rank whose state lies on a device, with the host in the device's
// place; executor_device_test.cpp has several ranks.
#include "cohort/engine/cuda/resident_test.h"

#include <gmock/gmock.h>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/engine/cuda/pinned_memory.h"

namespace cohort {
namespace {

using test::batch_of;
using test::Resident;
using test::ResidentWay;

class ResidentRuleTest : public testing::TestWithParam<ResidentWay> {};

TEST_P(ResidentRuleTest, TrainsAsAnExecutorOnTheHost) {
  ResidentWay host = GetParam();
  host.on = ComputeOn::kHost;
  test::expect_near(test::train(GetParam(), 4), test::train(host, 4), 2e-4, 2e-4);
}

INSTANTIATE_TEST_SUITE_P(
    Rules, ResidentRuleTest,
    testing::Values(ResidentWay{}, ResidentWay{.clip = 0.5, .no_decay = "bn"},
                    ResidentWay{.rule = "adamw", .slices = 2, .no_decay = "bias"},
                    ResidentWay{.rule = "adam", .recompute = "all"},
                    ResidentWay{.rule = "lars", .clip = 0.5, .recompute = "every=2"},
                    ResidentWay{.rule = "lamb", .shard = 3}),
    [](const auto& info) {
      return info.param.rule + (info.param.clip > 0 ? "_clip" : "");
    });

// Both ways of the device, and the host's.
TEST(Resident, ARankThatMeetsItselfAtAnyShardLevelTrainsAsOneThatDoesNot) {
  for (const ComputeOn on : {ComputeOn::kStaged, ComputeOn::kHost})
    for (int shard = 0; shard <= 3; ++shard) {
      SCOPED_TRACE(shard);
      const ResidentWay alone{.on = on, .slices = 2, .vote = true, .shard = shard};
      ResidentWay meets = alone;
      meets.meets_alone = true;
      test::expect_near(test::train(meets, 3), test::train(alone, 3), 0, 0);
    }
}

TEST(Resident, ElasticStepsAheadGiveTheBitsOfThoseThatWait) {
  for (const auto dtype : {at::kFloat, at::kHalf})
    for (const int shard : {0, 3}) {
      const ResidentWay way{
          .dtype = dtype, .slices = 2, .shard = shard, .elastic = true};
      test::expect_near(test::train(way, 4, /*ahead=*/true), test::train(way, 4), 0, 0);
    }
}

TEST(Resident, ABadStepLeavesNoTrace) {
  test::expect_no_trace_of_a_bad_step({.vote = true});
}

TEST(Resident, Float16HalvesItsLossScaleAfterABadStepAndGrowsAfterGoodOnes) {
  const LossScaleOptions options{.initial = 1024, .growth_steps = 2};
  Resident resident({.dtype = at::kHalf, .vote = true, .loss_scale = options});
  std::vector<double> scales;
  for (int64_t i = 0; i < 4; ++i) {
    const Batch batch = i == 1 ? test::bad_batch(i) : batch_of(i);
    EXPECT_EQ(resident.run(i, test::kRate, batch).skipped, i == 1);
    LossScale scale(options);
    scale.restore(resident.executor().small_state());
    scales.push_back(scale.value());
  }
  EXPECT_THAT(scales, testing::ElementsAre(1024, 512, 512, 1024));
}

TEST(Resident, Bfloat16KeepsFloat32MastersAndLearns) {
  Resident resident({.dtype = at::kBFloat16});
  std::vector<double> losses;
  for (int64_t i = 0; i < 18; ++i)
    losses.push_back(resident.run(i, test::kRate, batch_of(0)).loss);
  EXPECT_LT(losses.back(), 0.7 * losses.front());
  for (const auto& [name, tensor] : resident.weights())
    EXPECT_EQ(tensor.scalar_type(), at::kFloat) << name;
  EXPECT_EQ(resident.chain().parameters()[0].tensor.scalar_type(), at::kBFloat16);
}

TEST(Resident, AStepWithOtherSamplesChangesNothing) {
  Resident resident({});
  const uint64_t before = resident.executor().weights_hash();
  EXPECT_THROW(resident.executor().run({.step = 4,
                                        .rate = 0.1,
                                        .batch = [&](int) { return batch_of(0); },
                                        .expected = SampleSum{.sum = 1, .count = 1}}),
               BugError);
  EXPECT_EQ(resident.executor().weights_hash(), before);
}

TEST(Resident, ListsTheSamplesItDrew) {
  Resident resident({.listed = 8});
  Batch batch = batch_of(0);
  for (int64_t i = 0; i < batch.count; ++i) batch.ids.push_back(10 + i);
  const StepResult result = resident.executor().run(
      {.rate = 0.1, .batch = [&](int) { return batch; }, .sample_key = 9});
  EXPECT_EQ(result.drawn, sum_samples(9, batch.ids));
  EXPECT_EQ(result.samples, DrawnSamples{batch.ids});
}

TEST(Resident, ABadGradientIsNamedAndStopsTheRun) {
  Resident resident({});
  EXPECT_THAT(test::message_of<Error>(
                  [&] { resident.run(4, test::kRate, test::bad_batch(4)); }),
              testing::AllOf(testing::HasSubstr("step 5: the gradient of"),
                             testing::HasSubstr("nan=skip")));
}

TEST(Resident, AStateThatWasWrittenIsWhatIsComputedWithWhereverItIs) {
  for (const char* offload : {"none", "optimizer", "parameters"}) {
    const ResidentWay way{.dtype = at::kBFloat16, .offload = offload};
    Resident from({.dtype = at::kBFloat16}), to(way);
    for (int64_t i = 0; i < 3; ++i) from.run(i);
    const auto there = from.executor().state(Holding::kHeld);
    const auto here = to.executor().state(Holding::kHeld);
    ASSERT_EQ(there.size(), here.size());
    for (size_t i = 0; i < here.size(); ++i) here[i].data.copy_(there[i].data);
    to.executor().refresh();
    EXPECT_EQ(to.executor().weights_hash(), from.executor().weights_hash());
    EXPECT_EQ(to.run(3).loss, from.run(3).loss);
  }
}

TEST(Resident, ABadStepLeavesNoTraceInStateOnTheHost) {
  for (const char* offload : {"optimizer", "parameters"})
    test::expect_no_trace_of_a_bad_step({.vote = true, .offload = offload});
}

TEST(PinnedMemory, SaysWhyThereIsNone) {
  if (!why_no_cuda().empty()) {
    EXPECT_THROW(pinned_zeros(4, at::kFloat, at::Device(at::kCUDA, 0)), ConfigError);
  }
}

TEST(CudaLane, SaysWhyThereIsNone) {
  if (why_no_cuda().empty())
    EXPECT_NE(make_cuda_lane(), nullptr);
  else
    EXPECT_THROW(make_cuda_lane(), ConfigError);
}

}  // namespace
}  // namespace cohort
