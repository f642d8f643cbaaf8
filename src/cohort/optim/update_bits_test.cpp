// SPDX-License-Identifier: Apache-2.0
// What sgd and adam were before their arithmetic was shared with devices, element by
// element: stored weights depend on these bits. Compiled as the rules are, without
// contraction.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/update_rule.h"

namespace cohort {
namespace {

constexpr int64_t kBitsCount = 4099;  // vector bodies and a tail

struct Element {
  float p, g, first, second;  // states, as far as there are
};

Element former_sgd(Element e, const UpdateOptions& options, double weight_decay,
                   const StepScalars& scalars) {
  const auto scale = static_cast<float>(scalars.grad_scale);
  const auto decay = static_cast<float>(weight_decay);
  const auto mu = static_cast<float>(options.momentum);
  const auto rate = static_cast<float>(scalars.rate);
  if (options.momentum == 0) {
    e.p -= rate * (scale * e.g + decay * e.p);
    return e;
  }
  const float grad = scale * e.g + decay * e.p;
  e.first = mu * e.first + grad;
  e.p -= options.nesterov ? rate * (grad + mu * e.first) : rate * e.first;
  return e;
}

Element former_adam(Element e, const UpdateOptions& options, double weight_decay,
                    const StepScalars& scalars) {
  const bool decoupled = options.name == "adamw";
  const auto t = static_cast<double>(scalars.step);
  const auto number = [](double value) { return static_cast<float>(value); };
  const float scale = number(scalars.grad_scale);
  const float gradient_decay = number(decoupled ? 0 : weight_decay);
  const float keep = number(decoupled ? 1 - scalars.rate * weight_decay : 1);
  const float step_size = number(scalars.rate / (1 - std::pow(options.beta1, t)));
  const float root = number(std::sqrt(1 - std::pow(options.beta2, t)));
  const float grad = scale * e.g + gradient_decay * e.p;
  e.first = number(options.beta1) * e.first + number(1 - options.beta1) * grad;
  e.second = number(options.beta2) * e.second + number(1 - options.beta2) * grad * grad;
  const float denominator = std::sqrt(e.second) / root + number(options.eps);
  e.p = keep * e.p - step_size * e.first / denominator;
  return e;
}

// Numbers of all magnitudes, with zeros and numbers near the smallest among them.
std::vector<Element> some_elements() {
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-45, 3);
  const auto draw = [&] {
    return std::ldexp(normal(random), random() % 3 ? 0 : 3 * exponent(random));
  };
  std::vector<Element> all(kBitsCount);
  for (auto& e : all) e = {draw(), draw(), 0, 0};
  all[5].g = all[6].p = all[7].g = all[7].p = 0;
  return all;
}

class FormerBits : public testing::TestWithParam<UpdateOptions> {};

TEST_P(FormerBits, AreKept) {
  const auto rule = make_update_rule(GetParam());
  std::vector<Element> elements = some_elements();
  std::vector<float> p(kBitsCount), g(kBitsCount), first(kBitsCount),
      second(kBitsCount);
  for (int64_t i = 0; i < kBitsCount; ++i) p[i] = elements[i].p;
  std::vector<float*> states = {first.data(), second.data()};
  states.resize(rule->states().size());
  const auto former = GetParam().name == "sgd" ? former_sgd : former_adam;
  for (int64_t step = 1; step <= 4; ++step) {
    const double decay = step % 2 ? 1e-2 : 0;
    const StepScalars scalars{
        .rate = 0.03 / static_cast<double>(step), .grad_scale = 1.0 / 7, .step = step};
    for (int64_t i = 0; i < kBitsCount; ++i) {
      g[i] = elements[i].g = -1.5f * elements[i].g;
      elements[i] = former(elements[i], GetParam(), decay, scalars);
    }
    rule->apply({p.data(), g.data(), states, kBitsCount}, {.weight_decay = decay}, {},
                scalars);
    const auto same = [](float a, float b) {
      return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
    };
    for (int64_t i = 0; i < kBitsCount; ++i)
      ASSERT_TRUE(same(p[i], elements[i].p) && same(first[i], elements[i].first) &&
                  same(second[i], elements[i].second))
          << "step " << step << " element " << i << ": " << p[i] << ", was "
          << elements[i].p;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rules, FormerBits,
    testing::Values(UpdateOptions{.name = "sgd", .momentum = 0},
                    UpdateOptions{.name = "sgd", .momentum = 0.9},
                    UpdateOptions{.name = "sgd", .momentum = 0.9, .nesterov = true},
                    UpdateOptions{.name = "adam"},
                    UpdateOptions{.name = "adamw", .beta1 = 0.8, .eps = 1e-3}),
    [](const auto& info) { return text(info.param.name, info.index); });

}  // namespace
}  // namespace cohort
