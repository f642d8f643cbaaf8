// SPDX-License-Identifier: Apache-2.0
// What a program of its own gets of cohort::train(), with a rule, a rate and a metric
// of its own.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cohort/core/testing_error.h"
#include "cohort/core/testing_folder.h"
#include "cohort/trainer.h"
#include "recipes/testing_recipes.h"

namespace cohort {
namespace {

using test::find_recipe;
using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;

// p -= rate * gradient, one element at a time.
class PlainDescent final : public ElementwiseRule {
 public:
  std::string_view name() const override { return "plain-descent"; }
  std::span<const StateSpec> states() const override { return {}; }
  void apply(const UpdateStretch<float>& stretch, const ParameterTraits&,
             std::span<const double>, const StepScalars& scalars) const override {
    descend(stretch, scalars);
  }
  void apply(const UpdateStretch<double>& stretch, const ParameterTraits&,
             std::span<const double>, const StepScalars& scalars) const override {
    descend(stretch, scalars);
  }

 private:
  template <typename Real>
  static void descend(const UpdateStretch<Real>& stretch, const StepScalars& scalars) {
    const auto scale = static_cast<Real>(scalars.grad_scale);
    const auto rate = static_cast<Real>(scalars.rate);
    for (int64_t i = 0; i < stretch.count; ++i)
      stretch.parameter[i] -= rate * (scale * stretch.gradient[i]);
  }
};

// The recipe mlp, with what a test gives it.
class OwnMlp final : public Recipe {
 public:
  std::string_view name() const override { return "own-mlp"; }
  std::string_view help() const override { return "of a test"; }
  Config defaults() const override { return mlp_.defaults(); }
  Chain make_chain(const Config& config, const TensorPart& part) const override {
    Chain chain = mlp_.make_chain(config, part);
    if (!has_metric) return chain;
    chain.loss.metrics.named = {"sure", "samples"};
    chain.loss.function = [plain = chain.loss.function](const Values& outputs,
                                                        const Values& fields) {
      WeightedLoss loss = plain(outputs, fields);
      if (c10::GradMode::is_enabled()) return loss;
      const Tensor most = std::get<0>(outputs[0].softmax(1).max(1));
      loss.named = {most.sum().item<double>(), loss.count};
      return loss;
    };
    return chain;
  }
  std::unique_ptr<DataLoading> load(const Config& config, bool reader) const override {
    DataSets sets = mlp_.load(config, reader)->finish(nullptr);
    sets.valid = mlp_.load(config, reader)->finish(nullptr).train;
    return data_at_hand(std::move(sets));
  }
  std::unique_ptr<UpdateRule> make_rule(const Config&) const override {
    return has_rule ? std::make_unique<PlainDescent>() : nullptr;
  }
  RateFunction make_rate(const Config&) const override { return rate; }

  bool has_rule = false;
  bool has_metric = false;
  RateFunction rate = nullptr;

 private:
  const Recipe& mlp_ = find_recipe("mlp");
};

Config tiny(const Recipe& recipe) {
  Config config = recipe.defaults();
  for (const char* assignment :
       {"batch=16", "epochs=1", "data.synthetic=true", "model.width=8", "model.depth=2",
        "optim.name=sgd", "optim.momentum=0", "optim.lr=0.1", "threads=1"})
    config.set_assignment(assignment);
  return config;
}

TEST(TrainerApi, TrainsAndTellsWhatItDoes) {
  const Recipe& recipe = find_recipe("mlp");
  std::vector<int64_t> steps;
  int validations = 0;
  TrainOptions options{.max_steps = 3};
  options.on_step = [&](const TrainedStep& step) { steps.push_back(step.step); };
  options.on_validation = [&](const Validation&) { ++validations; };
  const TrainResult result = train(recipe, tiny(recipe), options);
  EXPECT_EQ(result.steps, 3);
  EXPECT_TRUE(result.loss.has_value());
  EXPECT_EQ(result.weights_hash.size(), 16u);
  EXPECT_FALSE(result.is_stopped);
  EXPECT_THAT(steps, ElementsAre(1, 2, 3));
  EXPECT_EQ(validations, 0) << "the epoch is not over";
}

TEST(TrainerApi, StopsWhenItIsAskedTo) {
  const Recipe& recipe = find_recipe("mlp");
  std::atomic<int> stop{0};
  TrainOptions options{.stop = &stop};
  options.on_step = [&](const TrainedStep& step) {
    if (step.step == 2) stop = 1;
  };
  const TrainResult result = train(recipe, tiny(recipe), options);
  EXPECT_TRUE(result.is_stopped);
  EXPECT_LE(result.steps, 4);
}

TEST(TrainerApi, GoesOnFromWhatItSaved) {
  const Recipe& recipe = find_recipe("mlp");
  const test::TempFolder folder;
  Config config = tiny(recipe);
  config.set_assignment("checkpoint.dir=" + (folder / "saved"));
  EXPECT_TRUE(train(recipe, config, {.max_steps = 2}).is_saved);
  EXPECT_THAT(message_of<ConfigError>([&] { train(recipe, config, {.max_steps = 4}); }),
              HasSubstr("--resume"));
  const TrainResult resumed = train(recipe, config, {.max_steps = 4, .resume = true});
  const TrainResult whole = train(recipe, tiny(recipe), {.max_steps = 4});
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
}

// It is what the library calls sgd without momentum, whatever the key says.
TEST(TrainerApi, ARuleOfItsOwnIsUsed) {
  OwnMlp recipe;
  const auto loss_of = [&](const char* name) {
    Config config = tiny(recipe);
    config.set("optim.name", name, "test");
    return *train(recipe, config, {.max_steps = 4}).loss;
  };
  const double sgd = loss_of("sgd"), adamw = loss_of("adamw");
  recipe.has_rule = true;
  EXPECT_NEAR(loss_of("adamw"), sgd, 1e-5);
  EXPECT_GT(std::abs(sgd - adamw), 1e-3);
}

TEST(TrainerApi, ARateOfItsOwnIsUsed) {
  OwnMlp recipe;
  recipe.rate = [](int64_t step, int64_t total) {
    return static_cast<double>(step + 1) / static_cast<double>(total);
  };
  std::vector<double> rates;
  int64_t steps = 0;
  TrainOptions options;
  options.on_step = [&](const TrainedStep& step) {
    rates.push_back(step.rate);
    steps = step.step;
  };
  train(recipe, tiny(recipe), options);
  ASSERT_EQ(rates.size(), static_cast<size_t>(steps));
  EXPECT_DOUBLE_EQ(rates.front(), 1.0 / static_cast<double>(steps));
  EXPECT_DOUBLE_EQ(rates.back(), 1);
}

TEST(TrainerApi, ARateThatIsNoNumberIsRefused) {
  OwnMlp recipe;
  recipe.rate = [](int64_t, int64_t) {
    return std::numeric_limits<double>::quiet_NaN();
  };
  EXPECT_THAT(message_of<ConfigError>([&] { train(recipe, tiny(recipe)); }),
              HasSubstr("legal: 0 or more"));
}

TEST(TrainerApi, MetricsOfItsOwnAreMeansOverTheValidationSet) {
  OwnMlp recipe;
  recipe.has_metric = true;
  std::vector<Validation> told;
  TrainOptions options;
  options.on_validation = [&](const Validation& valid) { told.push_back(valid); };
  train(recipe, tiny(recipe), options);
  ASSERT_EQ(told.size(), 1u);
  ASSERT_EQ(told[0].named.size(), 2u);
  EXPECT_EQ(told[0].named[0].first, "sure");
  EXPECT_GT(told[0].named[0].second, 0.05);
  EXPECT_LE(told[0].named[0].second, 1);
  EXPECT_EQ(told[0].named[1], (std::pair<std::string, double>("samples", 1)));
}

TEST(TrainerApi, RefusesWhatCannotBe) {
  const Recipe& recipe = find_recipe("mlp");
  EXPECT_THAT(message_of<ConfigError>(
                  [&] { train(recipe, tiny(recipe), {.backend = "smoke"}); }),
              HasSubstr("smoke"));
  EXPECT_THAT(
      message_of<ConfigError>([&] { train(recipe, tiny(recipe), {.layout = "dp=2"}); }),
      HasSubstr("dp=2"));
}

}  // namespace
}  // namespace cohort
