// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/cuda/cuda_step.h"

#include <gmock/gmock.h>

#include <limits>

#include "cohort/core/error.h"
#include "cohort/engine/cuda/train_steps_test.h"

namespace cohort {
namespace {

using test::batch_of;
using test::expect_near;
using test::train_by_executor;
using test::train_by_step;

struct Rule {
  std::string name;
  double clip;
  std::string no_decay;
};

class CudaStepRuleTest : public testing::TestWithParam<Rule> {};

TEST_P(CudaStepRuleTest, OnTheHostItTrainsAsTheExecutorDoes) {
  CudaStepOptions options;
  options.update.name = GetParam().name;
  options.update.nesterov = true;
  options.update.eps = 1e-3;  // else Adam makes much of the rounding of tiny gradients
  options.decay = {.weight_decay = 0.01, .no_decay = GetParam().no_decay};
  options.clip = GetParam().clip;
  options.on_host = true;
  expect_near(train_by_step(options, 4), train_by_executor(options, 4), 2e-4, 2e-4);
}

INSTANTIATE_TEST_SUITE_P(Rules, CudaStepRuleTest,
                         testing::Values(Rule{"sgd", 0, ""}, Rule{"sgd", 0.5, "bn"},
                                         Rule{"adamw", 0, "bias"}, Rule{"adam", 0, ""}),
                         [](const auto& info) {
                           return info.param.name +
                                  (info.param.clip > 0 ? "_clip" : "");
                         });

std::vector<Tensor> all_of(CudaStep& step) {
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : step.weights()) tensors.push_back(tensor);
  return tensors;
}

TEST(CudaStep, ABadStepLeavesNoTrace) {
  Chain chain = test::small_resnet();
  CudaStep step(chain, batch_of(0), {.on_host = true});
  step.start(0, test::kRate);
  EXPECT_FALSE(step.result().skipped);
  const auto before = all_of(step);

  Batch bad = batch_of(1);
  bad.input[0][0][0][0] = std::numeric_limits<float>::infinity();
  step.load(bad);
  step.start(1, test::kRate);
  EXPECT_TRUE(step.result().skipped);
  const auto after = all_of(step);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(before[i].equal(after[i]));

  step.load(batch_of(2));
  step.start(2, test::kRate);
  EXPECT_FALSE(step.result().skipped);
  EXPECT_FALSE(all_of(step)[0].equal(before[0]));
}

TEST(CudaStep, Float16HalvesItsLossScaleAfterABadStepAndGrowsAfterGoodOnes) {
  Chain chain = test::small_resnet();
  CudaStep step(chain, batch_of(0),
                {.compute = at::kHalf,
                 .loss_scale = {.initial = 1024, .growth_steps = 2},
                 .on_host = true});
  std::vector<double> scales;
  for (int64_t i = 0; i < 4; ++i) {
    Batch batch = batch_of(i);
    if (i == 1) batch.input.fill_(std::numeric_limits<float>::quiet_NaN());
    step.load(batch);
    step.start(i, test::kRate);
    EXPECT_EQ(step.result().skipped, i == 1);
    scales.push_back(step.result().loss_scale);
  }
  EXPECT_THAT(scales, testing::ElementsAre(1024, 512, 512, 1024));
}

TEST(CudaStep, Bfloat16KeepsFloat32MastersAndLearns) {
  Chain chain = test::small_resnet();
  CudaStep step(chain, batch_of(0), {.compute = at::kBFloat16, .on_host = true});
  std::vector<double> losses;
  for (int64_t i = 0; i < 12; ++i) {
    step.start(i, test::kRate);
    losses.push_back(step.result().loss);
  }
  EXPECT_LT(losses.back(), 0.7 * losses.front());
  for (const auto& [name, tensor] : step.weights())
    EXPECT_EQ(tensor.scalar_type(), at::kFloat) << name;
  EXPECT_EQ(chain.parameters()[0].tensor.scalar_type(), at::kBFloat16);
}

TEST(CudaStep, RefusesABatchOfAnotherShape) {
  Chain chain = test::small_resnet();
  CudaStep step(chain, batch_of(0), {.on_host = true});
  Batch small = batch_of(0);
  small.input = small.input.narrow(0, 0, 2);
  EXPECT_THROW(step.load(small), ConfigError);
}

TEST(CudaStep, RefusesAnOptimizerThatIsNone) {
  Chain chain = test::small_resnet();
  EXPECT_THROW(
      CudaStep(chain, batch_of(0), {.update = {.name = "sdg"}, .on_host = true}),
      ConfigError);
}

TEST(CudaLane, SaysWhyThereIsNone) {
  if (why_no_cuda().empty())
    EXPECT_NE(make_cuda_lane(), nullptr);
  else
    EXPECT_THROW(make_cuda_lane(), ConfigError);
}

}  // namespace
}  // namespace cohort
