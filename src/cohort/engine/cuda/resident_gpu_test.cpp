// SPDX-License-Identifier: Apache-2.0
// An executor whose state lies on the GPU.
#include <gmock/gmock.h>

#include "cohort/core/error.h"
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
