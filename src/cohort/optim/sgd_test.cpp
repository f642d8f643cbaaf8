// SPDX-License-Identifier: Apache-2.0
#include "cohort/optim/sgd.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "cohort/core/error.h"

namespace cohort {
namespace {

struct Golden {
  double momentum;
  bool nesterov;
  double weight_decay;
  std::array<float, 3> parameter;
};

// Made by sgd_golden.py: three steps of torch.optim.SGD, lr 0.1.
const std::vector<Golden> kGolden = {
    {0.0, false, 0.0, {0.699999988f, -1.85000002f, -0.100000001f}},
    {0.9, false, 0.0, {0.524500012f, -1.76225007f, -0.451000035f}},
    {0.9, true, 0.01, {0.264890462f, -1.62039244f, -0.95816642f}},
    {0.9, false, 0.01, {0.519184768f, -1.7511847f, -0.453222692f}},
};

TEST(Sgd, ThreeStepsAreThoseOfPyTorch) {
  for (const auto& golden : kGolden) {
    const auto rule =
        make_sgd({.momentum = golden.momentum, .nesterov = golden.nesterov});
    std::array<float, 3> p = {1.0f, -2.0f, 0.5f};
    std::array<float, 3> v = {};
    std::vector<float*> states;
    if (!rule->states().empty()) states.push_back(v.data());
    for (int step = 0; step < 3; ++step) {
      // As a sum over 4 samples, to be scaled to their mean.
      const float k = 4.0f * static_cast<float>(step + 1);
      const std::array<float, 3> g = {0.5f * k, -0.25f * k, 1.0f * k};
      rule->apply(p.data(), g.data(), states, 3, golden.weight_decay,
                  {.rate = 0.1, .grad_scale = 0.25, .step = step + 1});
    }
    for (int i = 0; i < 3; ++i) EXPECT_NEAR(p[i], golden.parameter[i], 1e-6);
  }
}

TEST(Sgd, BitsDoNotDependOnTheCut) {
  constexpr int64_t kCount = 1037;
  const auto rule = make_sgd({.momentum = 0.9, .nesterov = true});
  const auto run = [&](int64_t cut) {
    std::vector<float> p(kCount), v(kCount), g(kCount);
    for (int64_t i = 0; i < kCount; ++i) {
      p[i] = 0.1f * static_cast<float>(i % 97) - 3.3f;
      v[i] = 0.7f / static_cast<float>(i + 1);
      g[i] = 1.0f / static_cast<float>(i % 31 + 1);
    }
    const StepScalars scalars{.rate = 0.03, .grad_scale = 1.0 / 7};
    for (int64_t begin = 0; begin < kCount; begin += cut) {
      const int64_t count = std::min(cut, kCount - begin);
      std::array<float*, 1> states = {v.data() + begin};
      rule->apply(p.data() + begin, g.data() + begin, states, count, 1e-4, scalars);
    }
    return p;
  };
  const auto whole = run(kCount);
  for (int64_t cut : {1, 3, 16, 100}) EXPECT_EQ(run(cut), whole) << "cut " << cut;
}

TEST(UpdateRule, UnknownOptimizerIsRefused) {
  EXPECT_THROW(make_update_rule({.name = "sdg"}), ConfigError);
}

}  // namespace
}  // namespace cohort
