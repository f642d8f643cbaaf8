// SPDX-License-Identifier: Apache-2.0
#include "cohort/update_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"

namespace cohort {
namespace {

struct Golden {
  UpdateOptions options;
  double weight_decay;
  std::array<double, 3> parameter;
};

// Made by update_golden.py: five steps of torch.optim's class of that name, in float64.
const std::vector<Golden> kGolden = {
    {{.name = "sgd", .momentum = 0.0, .nesterov = false},
     0.0,
     {0.8499999999999999, -1.9250000000000003, 0.20000000000000004}},
    {{.name = "sgd", .momentum = 0.9, .nesterov = false},
     0.0,
     {0.7114465, -1.85572325, -0.07710699999999995}},
    {{.name = "sgd", .momentum = 0.9, .nesterov = true},
     0.01,
     {0.5846379709029184, -1.7827920958511514, -0.32119716859385544}},
    {{.name = "sgd", .momentum = 0.9, .nesterov = false},
     0.01,
     {0.7072031886951996, -1.8468102207810249, -0.07880224904302587}},
    {{.name = "adam", .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-08},
     0.0,
     {0.8082759599043432, -1.8082759628832903, 0.30827595841486943}},
    {{.name = "adam", .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-08},
     0.1,
     {0.8050928217715203, -1.7969464107679387, 0.3075094636059235}},
    {{.name = "adam", .beta1 = 0.8, .beta2 = 0.95, .eps = 0.01},
     0.0,
     {0.8118629653144708, -1.8146846970693697, 0.31041634996888706}},
    {{.name = "adamw", .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-08},
     0.0,
     {0.8082759599043432, -1.8082759628832903, 0.30827595841486943}},
    {{.name = "adamw", .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-08},
     0.1,
     {0.7874330202957383, -1.7647864828254987, 0.2987562890308577}},
    {{.name = "adamw", .beta1 = 0.8, .beta2 = 0.95, .eps = 0.01},
     0.3,
     {0.7503173193467333, -1.68621824355296, 0.28233232650385054}},
};

template <typename Real>
std::vector<Real*> pointers(std::vector<std::vector<Real>>& states, int64_t at = 0) {
  std::vector<Real*> all;
  for (auto& state : states) all.push_back(state.data() + at);
  return all;
}

template <typename Real>
void expect_pytorch(double tolerance) {
  for (const auto& golden : kGolden) {
    const auto rule = make_update_rule(golden.options);
    std::array<Real, 3> p = {1, -2, 0.5};
    std::vector<std::vector<Real>> states(rule->states().size(),
                                          std::vector<Real>(p.size()));
    for (int step = 0; step < 5; ++step) {
      // As a sum over 4 samples, to be scaled to their mean.
      const Real k = (step == 3 ? -4 : 4) * static_cast<Real>(step + 1);
      const std::array<Real, 3> g = {k / 2, -k / 4, k};
      rule->apply({p.data(), g.data(), pointers(states), 3},
                  {.weight_decay = golden.weight_decay}, {},
                  {.rate = 0.1 / (step + 1), .grad_scale = 0.25, .step = step + 1});
    }
    EXPECT_EQ(rule->name(), golden.options.name);
    for (int i = 0; i < 3; ++i)
      EXPECT_NEAR(p[i], golden.parameter[i], tolerance)
          << golden.options.name << " decay " << golden.weight_decay;
  }
}

TEST(UpdateRule, FiveStepsAreThoseOfPyTorch) {
  expect_pytorch<float>(1e-6);
  expect_pytorch<double>(1e-12);
}

// Everything an update changes, after two steps over stretches cut at `cuts`.
struct CutRun {
  explicit CutRun(const UpdateRule& rule)
      : p(kCount), g(kCount), states(rule.states().size(), std::vector<float>(kCount)) {
    for (int64_t i = 0; i < kCount; ++i) {
      p[i] = 0.1f * static_cast<float>(i % 97) - 3.3f;
      g[i] = 1.0f / static_cast<float>(i % 31 + 1);
      for (auto& state : states) state[i] = 0.7f / static_cast<float>(i + 1);
    }
  }

  void step(const UpdateRule& rule, const std::vector<int64_t>& cuts, int64_t number) {
    for (size_t i = 0; i + 1 < cuts.size(); ++i)
      rule.apply({p.data() + cuts[i], g.data() + cuts[i], pointers(states, cuts[i]),
                  cuts[i + 1] - cuts[i]},
                 {.weight_decay = 1e-4}, std::array{2.0, 3.0},
                 {.rate = 0.03, .grad_scale = 1.0 / 7, .step = number});
  }

  static constexpr int64_t kCount = 173;
  std::vector<float> p, g;
  std::vector<std::vector<float>> states;
};

class CutTest : public testing::TestWithParam<UpdateOptions> {};

TEST_P(CutTest, BitsDoNotDependOnWhereAStretchIsCut) {
  const auto rule = make_update_rule(GetParam());
  const auto run = [&](const std::vector<int64_t>& cuts) {
    CutRun state(*rule);
    for (int64_t number : {1, 2}) state.step(*rule, cuts, number);
    return state;
  };
  const CutRun whole = run({0, CutRun::kCount});
  for (int64_t cut = 0; cut <= 17; ++cut) {
    const CutRun parts = run({0, cut, 2 * cut, CutRun::kCount - cut, CutRun::kCount});
    EXPECT_EQ(parts.p, whole.p) << "cut " << cut;
    EXPECT_EQ(parts.states, whole.states) << "cut " << cut;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rules, CutTest,
    testing::Values(UpdateOptions{.name = "sgd", .momentum = 0},
                    UpdateOptions{.name = "sgd", .momentum = 0.9},
                    UpdateOptions{.name = "sgd", .momentum = 0.9, .nesterov = true},
                    UpdateOptions{.name = "adam"}, UpdateOptions{.name = "adamw"},
                    UpdateOptions{.name = "lars", .momentum = 0},
                    UpdateOptions{.name = "lars"},
                    UpdateOptions{.name = "lars", .nesterov = true},
                    UpdateOptions{.name = "lamb"}),
    [](const auto& info) { return text(info.param.name, info.index); });

TEST(UpdateRule, UnknownOptimizerIsRefusedWithTheNearest) {
  const std::string said =
      test::message_of<ConfigError>([&] { make_update_rule({.name = "adamv"}); });
  EXPECT_THAT(said, testing::HasSubstr("nearest: adam"));
  EXPECT_THAT(said, testing::HasSubstr("legal: sgd, adam, adamw, lars, lamb"));
}

TEST(StateShape, SaysHowManyElementsAStateHas) {
  const auto numel = [](StateShape shape, std::vector<int64_t> sizes) {
    return state_numel(shape, sizes);
  };
  const std::vector<int64_t> none, vector = {5}, matrix = {4, 6}, kernel = {8, 3, 2, 2};
  EXPECT_EQ(numel(StateShape::kParameter, none), 1);
  EXPECT_EQ(numel(StateShape::kParameter, kernel), 96);
  EXPECT_EQ(numel(StateShape::kScalar, matrix), 1);
  EXPECT_EQ(numel(StateShape::kRows, matrix), 4);
  EXPECT_EQ(numel(StateShape::kColumns, matrix), 6);
  EXPECT_EQ(numel(StateShape::kRows, kernel), 8);
  EXPECT_EQ(numel(StateShape::kColumns, kernel), 12);
  EXPECT_EQ(numel(StateShape::kRows, vector), 0);
  EXPECT_EQ(numel(StateShape::kColumns, vector), 0);
  EXPECT_EQ(numel(StateShape::kColumns, {0, 3}), 3);
  EXPECT_EQ(numel(StateShape::kNoMatrix, vector), 5);
  EXPECT_EQ(numel(StateShape::kNoMatrix, matrix), 0);
}

}  // namespace
}  // namespace cohort
