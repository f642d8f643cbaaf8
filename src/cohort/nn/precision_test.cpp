// SPDX-License-Identifier: Apache-2.0
// Models whose parameters are of two bytes, against the same in float32.
#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "cohort/nn/models.h"
#include "cohort/nn/testing_chain.h"
#include "cohort/step/gradient_target.h"

namespace cohort {
namespace {

// Rounds every parameter to `dtype` and keeps it there, or in float32.
void round_parameters(const Chain& chain, at::ScalarType dtype, at::ScalarType kept) {
  for (const auto& [name, tensor] : chain.parameters())
    Tensor(tensor).set_data(tensor.detach().to(dtype).to(kept));
}

double distance(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  return (x - y).norm().item<double>() / (1e-12 + y.norm().item<double>());
}

struct Outcome {
  Tensor logits;
  WeightedLoss loss;
  std::map<std::string, Tensor> gradients;
  std::vector<Statistic> statistics;
  Tensor evaluated;
};

Outcome run_once(const Chain& chain, const Tensor& x) {
  Outcome outcome;
  outcome.logits = test::run(chain, x, {.statistics = &outcome.statistics});
  outcome.loss = chain.loss({outcome.logits}, {at::tensor({1, 0, 3, 2}, at::kLong)});
  outcome.gradients = test::gradients(chain, outcome.loss);
  outcome.evaluated = test::run(chain, x, {.phase = Phase::kEvaluate});
  return outcome;
}

struct Case {
  at::ScalarType dtype;
  double eps;  // distance of 1 and the next larger number
};

void PrintTo(const Case& given, std::ostream* out) { *out << given.dtype; }

class PrecisionTest : public testing::TestWithParam<Case> {
 protected:
  // Compares a model in the narrow dtype with the same model in float32.
  void compare(const std::function<Chain()>& make, const Tensor& x) {
    const auto [dtype, eps] = GetParam();
    // A share of about eps of the values changes sides at a ReLU, which gradients feel
    // as the root of that share, relative to their length.
    const double flips = 4 * std::sqrt(eps);
    const Chain wide = make(), narrow = make();
    test::set_weights(wide);
    test::set_weights(narrow);
    round_parameters(wide, dtype, at::kFloat);
    round_parameters(narrow, dtype, dtype);
    const Outcome expected = run_once(wide, x);
    const Outcome outcome = run_once(narrow, x);

    EXPECT_EQ(outcome.logits.scalar_type(), dtype);
    EXPECT_EQ(outcome.loss.sum.scalar_type(), at::kFloat);
    EXPECT_LT(distance(outcome.logits, expected.logits), 8 * eps);
    EXPECT_LT(distance(outcome.evaluated, expected.evaluated), 8 * eps);
    for (const auto& [name, gradient] : outcome.gradients) {
      EXPECT_EQ(gradient.scalar_type(), dtype) << name;
      EXPECT_LT(distance(gradient, expected.gradients.at(name)), flips) << name;
    }
    ASSERT_EQ(outcome.statistics.size(), expected.statistics.size());
    for (size_t i = 0; i < outcome.statistics.size(); ++i) {
      EXPECT_EQ(outcome.statistics[i].value.scalar_type(), at::kFloat) << i;
      EXPECT_LT(distance(outcome.statistics[i].value, expected.statistics[i].value),
                8 * eps);
    }
  }
};

TEST_P(PrecisionTest, ResNetIsThatOfFloat32WithinRounding) {
  for (const auto block : {ResNetBlock::kBasic, ResNetBlock::kPreActivation})
    compare(
        [block] {
          return make_resnet({.depths = {1, 1},
                              .width = 8,
                              .classes = 4,
                              .block = block,
                              .small_images = true},
                             {});
        },
        test::noise({4, 3, 16, 16}, 3));
}

TEST_P(PrecisionTest, MlpIsThatOfFloat32WithinRounding) {
  compare(
      [] {
        return make_mlp(
            {.inputs = 48, .width = 32, .depth = 2, .classes = 4, .dropout = 0}, {});
      },
      test::noise({4, 3, 4, 4}, 3));
}

// Layers alone have no ReLU: each result is as good as a few roundings.
TEST_P(PrecisionTest, LayersRoundOnlyAFewTimes) {
  const auto [dtype, eps] = GetParam();
  TensorLists tensors;
  const Linear linear(tensors, "f", 20, 6, {});
  const Conv2d conv(tensors, "c", 5, 6, {.kernel = 3, .stride = 2, .padding = 1}, {});
  const BatchNorm2d norm(tensors, "n", 5);
  using Layer = std::function<Tensor(const Tensor&, Context&)>;
  const std::vector<Layer> layers = {
      [&](const Tensor& x, Context& c) { return linear(x.flatten(1), c); },
      [&](const Tensor& x, Context&) { return conv(x); },
      [&](const Tensor& x, Context& c) { return norm(x, c); }};
  const Tensor given = (test::noise({3, 5, 2, 2}, 3) + 2).to(dtype);
  const auto run = [&](const Layer& layer, at::ScalarType as) {
    for (auto& [name, tensor] : tensors.parameters)
      tensor.set_data(tensor.detach().to(dtype).to(as));
    const Tensor x = given.to(as, false, true).requires_grad_(true);
    Context context;
    const Tensor y = layer(x, context);
    EXPECT_EQ(y.scalar_type(), as);
    const Tensor grad = test::noise(y.sizes(), 7).to(dtype).to(as);
    return std::pair(y, torch::autograd::grad({y}, {x}, {grad})[0]);
  };
  for (const Layer& layer : layers) {
    const auto [y, grad] = run(layer, dtype);
    const auto [wide_y, wide_grad] = run(layer, at::kFloat);
    EXPECT_LT(distance(y, wide_y), eps);
    EXPECT_LT(distance(grad, wide_grad), eps);
  }
}

// Squares of values around 100 have no digit left for the variance in 8 bits.
TEST_P(PrecisionTest, StatisticsAreThoseOfFloat32) {
  TensorLists tensors;
  const BatchNorm2d norm(tensors, "n", 4);
  const Tensor x = (test::noise({8, 4, 6, 6}, 3) + 100).to(GetParam().dtype);
  const auto statistics = [&](const Tensor& input) {
    std::vector<Statistic> found;
    Context context{.statistics = &found};
    norm(input, context);
    return found;
  };
  const auto narrow = statistics(x), wide = statistics(x.to(at::kFloat));
  for (size_t i : {0, 1})
    EXPECT_TRUE(at::allclose(narrow[i].value, wide[i].value, 1e-4, 1e-5)) << i;
}

TEST_P(PrecisionTest, LinearGradientsAreBornInTargetsOfTheirDtype) {
  struct Sink final : GradSink {
    explicit Sink(at::ScalarType dtype) : dtype(dtype) {}
    GradCell take(const Tensor& parameter) override {
      targets.push_back(at::zeros_like(parameter, dtype));
      return std::make_shared<GradTarget>(targets.back());
    }
    at::ScalarType dtype;
    std::vector<Tensor> targets;
  };
  const Chain chain = make_mlp({.inputs = 6, .depth = 0, .classes = 4}, {});
  round_parameters(chain, GetParam().dtype, GetParam().dtype);
  const Tensor x = test::noise({4, 6}, 3);
  const Tensor target = at::tensor({1, 0, 3, 2}, at::kLong);
  Sink sink(GetParam().dtype);
  const auto grads = test::gradients(
      chain, chain.loss({test::run(chain, x, {.grads = &sink})}, {target}));
  ASSERT_EQ(sink.targets.size(), 2u);
  EXPECT_EQ(grads.at("0.weight").data_ptr(), sink.targets[0].data_ptr());
  EXPECT_GT(grads.at("0.weight").abs().sum().item<float>(), 0);

  Sink other(at::kFloat);
  const WeightedLoss loss =
      chain.loss({test::run(chain, x, {.grads = &other})}, {target});
  EXPECT_THROW(test::gradients(chain, loss), BugError);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, PrecisionTest,
                         testing::Values(Case{at::kBFloat16, 0x1p-7},
                                         Case{at::kHalf, 0x1p-10}),
                         [](const auto& info) {
                           return std::string(c10::toString(info.param.dtype));
                         });

}  // namespace
}  // namespace cohort
