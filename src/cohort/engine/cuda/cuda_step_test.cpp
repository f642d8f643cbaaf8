// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/cuda/cuda_step.h"

#include <gmock/gmock.h>

#include <limits>

#include "cohort/core/error.h"
#include "cohort/engine/cuda/train_steps_test.h"
#include "support/gathered_weights.h"

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
  CudaStep step(chain, {.on_host = true});
  step.load(0, batch_of(0));
  step.start(0, test::kRate);
  EXPECT_FALSE(step.result().skipped);
  const auto before = all_of(step);

  Batch bad = batch_of(1);
  bad.at("input")[0][0][0][0] = std::numeric_limits<float>::infinity();
  step.load(1, bad);
  step.start(1, test::kRate);
  EXPECT_TRUE(step.result().skipped);
  const auto after = all_of(step);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(before[i].equal(after[i]));

  step.load(2, batch_of(2));
  step.start(2, test::kRate);
  EXPECT_FALSE(step.result().skipped);
  EXPECT_FALSE(all_of(step)[0].equal(before[0]));
}

TEST(CudaStep, Float16HalvesItsLossScaleAfterABadStepAndGrowsAfterGoodOnes) {
  Chain chain = test::small_resnet();
  CudaStep step(chain, {.compute = at::kHalf,
                        .loss_scale = {.initial = 1024, .growth_steps = 2},
                        .on_host = true});
  step.load(0, batch_of(0));
  std::vector<double> scales;
  for (int64_t i = 0; i < 4; ++i) {
    Batch batch = batch_of(i);
    if (i == 1) batch.at("input").fill_(std::numeric_limits<float>::quiet_NaN());
    step.load(i, batch);
    step.start(i, test::kRate);
    EXPECT_EQ(step.result().skipped, i == 1);
    scales.push_back(step.result().loss_scale);
  }
  EXPECT_THAT(scales, testing::ElementsAre(1024, 512, 512, 1024));
}

TEST(CudaStep, Bfloat16KeepsFloat32MastersAndLearns) {
  Chain chain = test::small_resnet();
  CudaStep step(chain, {.compute = at::kBFloat16, .on_host = true});
  step.load(0, batch_of(0));
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

// Through the interface that a Trainer sees, beside an executor that knows no device:
// slices of two sizes, a short last batch that leaves some empty, dropout.
struct RunnerCase {
  std::string name;
  std::string recompute = "none";
  at::ScalarType compute = at::kFloat;
};

class CudaRunnerTest : public testing::TestWithParam<RunnerCase> {};

test::Trained train_by_runner(const RunnerCase& way, ComputeOn compute_on,
                              bool images) {
  constexpr int64_t kSteps = 4;
  Chain chain = images
                    ? test::small_resnet()
                    : make_mlp({.inputs = 24, .width = 16, .depth = 2, .dropout = 0.4},
                               {.seed = 3});
  const UpdateOptions update{.name = "sgd", .momentum = 0.9};
  const auto rule = make_update_rule(update);
  const World world;
  const auto store = join(world, {});
  const auto comm = connect(world, *store, {.backend = "local"});
  const Precision precision{.compute = way.compute, .reduce = way.compute};
  const auto runner = make_step_runner(
      chain,
      generate(specs_of(chain), {},
               {.slices = 3,
                .recompute = BlockChoice::parse(way.recompute, "test"),
                .precision = precision}),
      update, *rule, *comm,
      {.seed = 7, .usual_count = 5, .compute_on = compute_on, .listed_samples = 6});
  test::Trained trained;
  for (int64_t step = 0; step < kSteps; ++step) {
    std::vector<int64_t> drawn;
    const auto batch = [&](int slice) {
      const int64_t rows =
          step + 1 == kSteps ? (slice == 0 ? 2 : 0) : 1 + (slice + 1) % 2;
      Batch all = batch_of(5 * step + slice);
      Batch made = Batch::of({{"input", all.at("input").narrow(0, 0, rows)},
                              {"target", all.at("target").narrow(0, 0, rows)}});
      if (!images) made.at("input") = made.at("input").flatten(1).narrow(1, 0, 24);
      for (int64_t i = 0; i < rows; ++i)
        made.ids.push_back(100 * step + 10 * slice + i);
      drawn.insert(drawn.end(), made.ids.begin(), made.ids.end());
      return made;
    };
    const StepResult result =
        runner->run({.step = step, .rate = 0.02, .batch = batch, .sample_key = 9});
    EXPECT_EQ(result.drawn, sum_samples(9, drawn));
    EXPECT_EQ(result.samples, DrawnSamples{drawn});
    trained.losses.push_back(result.loss);
  }
  Batch seen = batch_of(1);
  if (!images) seen.at("input") = seen.at("input").flatten(1).narrow(1, 0, 24);
  const Schedule forward =
      generate(specs_of(chain), {}, {.forward_only = true, .precision = precision});
  const WeightedLoss loss = runner->evaluate(forward, seen);
  trained.losses.push_back(loss.sum.item<double>() / loss.count);
  EXPECT_EQ(loss.count, test::kBatch);
  trained.weights = test::gathered_weights(*runner, *comm);
  return trained;
}

TEST_P(CudaRunnerTest, TrainsAsTheExecutorDoes) {
  const double bound = GetParam().compute == at::kFloat ? 3e-4 : 5e-2;
  for (const bool images : {false, true})
    expect_near(train_by_runner(GetParam(), ComputeOn::kStaged, images),
                train_by_runner(GetParam(), ComputeOn::kHost, images), bound, bound);
}

INSTANTIATE_TEST_SUITE_P(Ways, CudaRunnerTest,
                         testing::Values(RunnerCase{"float32"},
                                         RunnerCase{"recompute", "all"},
                                         RunnerCase{"recompute_half", "every=2"},
                                         RunnerCase{"bf16", "none", at::kBFloat16}),
                         [](const auto& info) { return info.param.name; });

TEST(CudaRunner, AStepWithOtherSamplesChangesNothing) {
  Chain chain = test::small_resnet();
  const auto rule = make_update_rule({});
  const World world;
  const auto store = join(world, {});
  const auto comm = connect(world, *store, {.backend = "local"});
  const auto runner =
      make_step_runner(chain, generate(specs_of(chain), {}, {}), {}, *rule, *comm,
                       {.compute_on = ComputeOn::kStaged});
  const uint64_t before = runner->weights_hash();
  EXPECT_THROW(runner->run({.step = 4,
                            .rate = 0.1,
                            .batch = [&](int) { return batch_of(0); },
                            .expected = SampleSum{.sum = 1, .count = 1}}),
               BugError);
  EXPECT_EQ(runner->weights_hash(), before);
}

TEST(CudaRunner, ABadGradientIsNamedAndStopsTheRun) {
  Chain chain = test::small_resnet();
  const auto rule = make_update_rule({});
  const World world;
  const auto store = join(world, {});
  const auto comm = connect(world, *store, {.backend = "local"});
  const auto runner =
      make_step_runner(chain, generate(specs_of(chain), {}, {}), {}, *rule, *comm,
                       {.compute_on = ComputeOn::kStaged});
  Batch bad = batch_of(0);
  bad.at("input").fill_(std::numeric_limits<float>::quiet_NaN());
  try {
    runner->run({.step = 4, .rate = 0.1, .batch = [&](int) { return bad; }});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr("step 5: the gradient of"),
                               testing::HasSubstr("nan=skip")));
  }
}

TEST(CudaStep, RefusesAnOptimizerThatIsNone) {
  Chain chain = test::small_resnet();
  EXPECT_THROW(CudaStep(chain, {.update = {.name = "sdg"}, .on_host = true}),
               ConfigError);
}

// Its kernels know no sums over tensors.
TEST(CudaStep, RefusesARuleThatTheHostMustApply) {
  for (const char* name : {"lars", "lamb"}) try {
      Chain chain = test::small_resnet();
      CudaStep(chain, {.update = {.name = name}, .on_host = true});
      ADD_FAILURE() << name << " was accepted";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("step.offload=optimizer"));
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
