// SPDX-License-Identifier: Apache-2.0
#include "cohort/optim/update_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "cohort/core/error.h"

namespace cohort {
namespace {

struct Golden {
  UpdateOptions options;
  double weight_decay;
  std::array<float, 3> parameter;
};

// Made by update_golden.py: five steps of torch.optim's class of that name.
const std::vector<Golden> kGolden = {
    {{.name = "sgd", .momentum = 0.0, .nesterov = false},
     0.0,
     {0.849999964f, -1.92500007f, 0.200000018f}},
    {{.name = "sgd", .momentum = 0.9, .nesterov = false},
     0.0,
     {0.711446524f, -1.85572326f, -0.0771070123f}},
    {{.name = "sgd", .momentum = 0.9, .nesterov = true},
     0.01,
     {0.584638f, -1.78279209f, -0.321197182f}},
    {{.name = "sgd", .momentum = 0.9, .nesterov = false},
     0.01,
     {0.70720315f, -1.84681022f, -0.0788022354f}},
    {{.name = "adam", .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-08},
     0.0,
     {0.808276057f, -1.80827582f, 0.308275938f}},
    {{.name = "adam", .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-08},
     0.1,
     {0.805092931f, -1.79694653f, 0.307509452f}},
    {{.name = "adam", .beta1 = 0.8, .beta2 = 0.95, .eps = 0.01},
     0.0,
     {0.811863005f, -1.81468463f, 0.310416341f}},
    {{.name = "adamw", .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-08},
     0.0,
     {0.808276057f, -1.80827582f, 0.308275938f}},
    {{.name = "adamw", .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-08},
     0.1,
     {0.787433088f, -1.76478648f, 0.298756301f}},
    {{.name = "adamw", .beta1 = 0.8, .beta2 = 0.95, .eps = 0.01},
     0.3,
     {0.750317395f, -1.68621838f, 0.282332331f}},
};

std::vector<float*> pointers(std::vector<std::vector<float>>& states, int64_t at = 0) {
  std::vector<float*> all;
  for (auto& state : states) all.push_back(state.data() + at);
  return all;
}

TEST(UpdateRule, FiveStepsAreThoseOfPyTorch) {
  for (const auto& golden : kGolden) {
    const auto rule = make_update_rule(golden.options);
    std::array<float, 3> p = {1.0f, -2.0f, 0.5f};
    std::vector<std::vector<float>> states(rule->states().size(),
                                           std::vector<float>(p.size()));
    for (int step = 0; step < 5; ++step) {
      // As a sum over 4 samples, to be scaled to their mean.
      const float k = (step == 3 ? -4.0f : 4.0f) * static_cast<float>(step + 1);
      const std::array<float, 3> g = {0.5f * k, -0.25f * k, 1.0f * k};
      rule->apply(p.data(), g.data(), pointers(states), 3, golden.weight_decay,
                  {.rate = 0.1 / (step + 1), .grad_scale = 0.25, .step = step + 1});
    }
    EXPECT_EQ(rule->name(), golden.options.name);
    for (int i = 0; i < 3; ++i)
      EXPECT_NEAR(p[i], golden.parameter[i], 1e-6)
          << golden.options.name << " decay " << golden.weight_decay;
  }
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
      rule.apply(p.data() + cuts[i], g.data() + cuts[i], pointers(states, cuts[i]),
                 cuts[i + 1] - cuts[i], 1e-4,
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
                    UpdateOptions{.name = "adam"}, UpdateOptions{.name = "adamw"}),
    [](const auto& info) { return text(info.param.name, info.index); });

TEST(UpdateRule, UnknownOptimizerIsRefusedWithTheNearest) {
  try {
    make_update_rule({.name = "adamv"});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("nearest: adam"));
    EXPECT_THAT(error.what(), testing::HasSubstr("legal: sgd, adam, adamw"));
  }
}

}  // namespace
}  // namespace cohort
