// SPDX-License-Identifier: Apache-2.0
// An executor whose state lies on the GPU.
#include <gmock/gmock.h>

#include "cohort/core/error.h"
#include "cohort/engine/cuda/pinned_memory.h"
#include "cohort/engine/cuda/resident_test.h"

namespace cohort {
namespace {

using test::Resident;
using test::ResidentWay;
using test::train;

constexpr auto kCuda = ComputeOn::kCuda;

using ResidentGpuTest = test::ExactGpuTest;

TEST_F(ResidentGpuTest, TrainsAsAnExecutorOnTheHost) {
  for (const char* rule : {"sgd", "adam", "adamw", "lars", "lamb"})
    for (const double clip : {0.0, 0.5}) {
      SCOPED_TRACE(testing::Message() << rule << " clip " << clip);
      test::expect_near(train({.rule = rule, .on = kCuda, .clip = clip}),
                        train({.rule = rule, .on = ComputeOn::kHost, .clip = clip}),
                        1e-3, 1e-2);
    }
}

TEST_F(ResidentGpuTest, CapturedStepsGiveTheBitsOfUncapturedOnes) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const int slices : {1, 2})
      for (const int shard : {0, 3}) {
        SCOPED_TRACE(testing::Message() << dtype << " " << slices << " " << shard);
        ResidentWay way{.dtype = dtype,
                        .on = kCuda,
                        .slices = slices,
                        .vote = true,
                        .shard = shard};
        const auto captured = train(way);
        way.capture = false;
        test::expect_near(captured, train(way), 0, 0);
      }
}

// Two graphs, between which the host learns what the step before came to.
TEST_F(ResidentGpuTest, ElasticStepsAheadGiveTheBitsOfThoseThatWait) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const int slices : {1, 2})
      for (const int shard : {0, 3})
        for (const bool capture : {false, true}) {
          SCOPED_TRACE(testing::Message() << dtype << " " << slices << " " << shard
                                          << " captured " << capture);
          ResidentWay way{.dtype = dtype,
                          .on = kCuda,
                          .capture = capture,
                          .slices = slices,
                          .shard = shard,
                          .elastic = true};
          const auto ahead = train(way, 7, /*ahead=*/true);
          test::expect_near(ahead, train(way), 0, 0);
          way.elastic = false;
          way.vote = true;
          test::expect_near(ahead, train(way), 0, 0);
        }
}

TEST_F(ResidentGpuTest, ABadStepLeavesNoTraceInAReplay) {
  test::expect_no_trace_of_a_bad_step({.on = kCuda, .vote = true});
}

// The kernels are the same, wherever the state lies; train() sees that it is captured.
TEST_F(ResidentGpuTest, StateOnTheHostGivesTheBitsOfStateOnTheGpu) {
  for (const char* rule : {"sgd", "adamw", "lars", "lamb"})
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf})
      for (const bool capture : {true, false}) {
        ResidentWay way{.rule = rule,
                        .dtype = dtype,
                        .on = kCuda,
                        .capture = capture,
                        .slices = 2,
                        .vote = true,
                        .clip = 0.5};
        const auto none = train(way);
        for (const char* offload : {"optimizer", "parameters"}) {
          SCOPED_TRACE(testing::Message() << rule << dtype << capture << offload);
          way.offload = offload;
          test::expect_near(train(way), none, 0, 0);
        }
      }
}

TEST_F(ResidentGpuTest, ABadStepLeavesNoTraceInStateOnTheHost) {
  for (const char* offload : {"optimizer", "parameters"})
    test::expect_no_trace_of_a_bad_step(
        {.on = kCuda, .vote = true, .offload = offload});
}

TEST_F(ResidentGpuTest, AStateOnTheHostThatWasWrittenIsWhatIsComputedWith) {
  for (const char* offload : {"optimizer", "parameters"}) {
    Resident from({.dtype = at::kBFloat16, .on = kCuda});
    Resident to({.dtype = at::kBFloat16, .on = kCuda, .offload = offload});
    for (int64_t i = 0; i < 3; ++i) from.run(i);
    const auto there = from.executor().state(Holding::kHeld);
    const auto here = to.executor().state(Holding::kHeld);
    for (size_t i = 0; i < here.size(); ++i) here[i].data.copy_(there[i].data);
    to.executor().refresh();
    EXPECT_EQ(to.executor().weights_hash(), from.executor().weights_hash());
    EXPECT_EQ(to.run(3).loss, from.run(3).loss);
  }
}

// The figure is the most that the process ever had: those that need less come first.
TEST_F(ResidentGpuTest, StateOnTheHostTakesNoMemoryOfTheGpu) {
  constexpr int64_t kWidth = 2048;
  int64_t before = 0;
  for (const char* offload : {"parameters", "optimizer", "none"}) {
    Resident resident({.rule = "adamw", .on = kCuda, .offload = offload, .model = [] {
                         return make_mlp({.inputs = 24, .width = kWidth, .depth = 4},
                                         {});
                       }});
    const Batch batch = Batch::of(
        {{"input", at::ones({2, 24})}, {"target", at::zeros({2}, at::kLong)}}, {0, 1});
    for (int64_t i = 0; i < 5; ++i) resident.run(i, test::kRate, batch);
    EXPECT_TRUE(resident.executor().captured());
    const int64_t peak = resident.executor().device_peak_bytes();
    EXPECT_GT(peak, before + kWidth * kWidth * 4) << offload;
    before = peak;
  }
}

TEST_F(ResidentGpuTest, PinnedMemoryIsZeroAndReachedInPlace) {
  const at::Device gpu(at::kCUDA, 0);
  const Tensor pinned = pinned_zeros(5000, at::kFloat, gpu);
  EXPECT_TRUE(pinned.is_cuda());
  EXPECT_EQ(pinned.sum().item<float>(), 0);
  pinned.add_(2);
  const Tensor copy = at::empty({5000}, pinned.options());
  copy.copy_(pinned, /*non_blocking=*/true);
  EXPECT_EQ(copy.sum().item<float>(), 10000);
  EXPECT_EQ(pinned.cpu().sum().item<float>(), 10000);
  EXPECT_THROW(pinned_zeros(int64_t{1} << 50, at::kFloat, gpu), ConfigError);
}

// The rate of a replay is that of its own step, not of the capture.
TEST_F(ResidentGpuTest, AReplayUsesTheRateItIsGiven) {
  Resident resident({.on = kCuda});
  for (int64_t i = 0; i < 5; ++i) resident.run(i);
  ASSERT_TRUE(resident.executor().captured());
  const Tensor before = resident.weights()[0].tensor;
  resident.run(5, 0);
  EXPECT_TRUE(resident.weights()[0].tensor.equal(before));
  resident.run(6, test::kRate);
  EXPECT_FALSE(resident.weights()[0].tensor.equal(before));
}

// The mask of a replay is that of its own step and samples: as the host draws it.
TEST_F(ResidentGpuTest, DropoutOfAReplayIsThatOfTheHost) {
  const auto losses = [](ComputeOn on) {
    Resident resident(
        {.on = on, .seed = 5, .model = [] {
           return make_mlp({.inputs = 24, .width = 64, .depth = 2, .dropout = 0.5}, {});
         }});
    std::vector<double> all;
    for (int64_t i = 0; i < 8; ++i) {
      const Batch batch = Batch::of(
          {{"input", at::ones({2, 24})}, {"target", at::zeros({2}, at::kLong)}},
          {3 * i, 3 * i + 1});
      all.push_back(resident.run(i, 0, batch).loss);  // only the mask changes
    }
    EXPECT_EQ(resident.executor().captured(), on == kCuda);
    return all;
  };
  const auto gpu = losses(kCuda), host = losses(ComputeOn::kHost);
  for (size_t i = 0; i < gpu.size(); ++i) EXPECT_NEAR(gpu[i], host[i], 1e-5) << i;
  EXPECT_NE(gpu[6], gpu[7]);
}

// Random numbers that come from anywhere but the keys would be the same at each replay.
TEST_F(ResidentGpuTest, RefusesToCaptureABlockThatWaits) {
  Resident resident(
      {.on = kCuda, .model = [] {
         Chain chain = make_mlp({.inputs = 4, .width = 8, .depth = 1}, {});
         chain.loss.function = [inner = chain.loss](const Values& outputs,
                                                    const Values& fields) {
           WeightedLoss loss = inner(outputs, fields);
           loss.count = loss.sum.item<double>() > 1e9 ? 1 : 2;
           return loss;
         };
         return chain;
       }});
  const Batch batch = Batch::of(
      {{"input", at::ones({2, 4})}, {"target", at::zeros({2}, at::kLong)}}, {0, 1});
  for (int64_t i = 0; i < 3; ++i) resident.run(i, test::kRate, batch);
  EXPECT_THROW(resident.run(3, test::kRate, batch), ConfigError);
}

}  // namespace
}  // namespace cohort
