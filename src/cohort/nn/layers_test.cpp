// SPDX-License-Identifier: Apache-2.0
#include "cohort/layers.h"

#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>

#include "cohort/nn/linear_function.h"
#include "cohort/nn/testing_targets.h"
#include "cohort/step/gradient_target.h"

namespace cohort {
namespace {

struct LinearUnderTest {
  TensorLists tensors;
  Linear linear{tensors, "f", 5, 3, {.seed = 1}};
  Tensor x = at::arange(20, at::kFloat).reshape({4, 5}).sin().requires_grad_(true);

  Values gradients(Context& context) {
    const Tensor y = linear(x, context).square().sum();
    return torch::autograd::grad(
        {y}, {x, tensors.parameters[0].tensor, tensors.parameters[1].tensor});
  }
};

TEST(Linear, GradientsBornInTheirTargetAreThoseOfStockAutograd) {
  LinearUnderTest test;
  Context plain;
  const Values stock = test.gradients(plain);
  test::SevenEverywhere sink;
  Context born{.grads = &sink};
  const Values ours = test.gradients(born);
  for (size_t i = 0; i < stock.size(); ++i) EXPECT_TRUE(stock[i].equal(ours[i])) << i;
  const void* weight = test.tensors.parameters[0].tensor.unsafeGetTensorImpl();
  EXPECT_EQ(ours[1].data_ptr(), sink.targets[weight].data_ptr());
}

TEST(Linear, WithoutABiasHasTheGradientsOfStockAutograd) {
  const Tensor x = at::arange(20, at::kFloat).reshape({4, 5}).sin();
  const Tensor weight = at::arange(15, at::kFloat).reshape({3, 5}).cos();
  weight.requires_grad_(true);
  const auto gradient = [&](Context context) {
    const Tensor y = linear_layer(x, weight, {}, WeightOrder::kOutIn, context);
    return torch::autograd::grad({y.square().sum()}, {weight})[0];
  };
  test::SevenEverywhere sink;
  EXPECT_TRUE(gradient({.grads = &sink}).equal(gradient({})));
}

TEST(Linear, LaterSlicesAddToTheTarget) {
  LinearUnderTest test;
  Context plain;
  const Values stock = test.gradients(plain);
  test::SevenEverywhere sink;
  sink.accumulate = true;
  Context born{.grads = &sink};
  const Values ours = test.gradients(born);
  EXPECT_TRUE(at::allclose(ours[1], stock[1] + 7.0));
  EXPECT_TRUE(at::allclose(ours[2], stock[2] + 7.0));
}

// Cells whose targets come later.
class LaterTargets final : public GradSink {
 public:
  GradCell take(const Tensor&) override {
    cells.push_back(std::make_shared<GradTarget>(GradTarget{.later = &later}));
    return cells.back();
  }
  std::vector<std::shared_ptr<GradTarget>> cells;
  LaterGradients later;
};

TEST(Linear, GradientsOfItsParametersCanWait) {
  LinearUnderTest test;
  Context plain;
  const Values stock = test.gradients(plain);
  LaterTargets sink;
  Context waits{.grads = &sink};
  const Tensor y = test.linear(test.x, waits).square().sum();
  const Values now = torch::autograd::grad(
      {y},
      {test.x, test.tensors.parameters[0].tensor, test.tensors.parameters[1].tensor},
      {}, {}, false, /*allow_unused=*/true);
  EXPECT_TRUE(now[0].equal(stock[0]));
  EXPECT_FALSE(now[1].defined());
  EXPECT_FALSE(now[2].defined());
  ASSERT_EQ(sink.later.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const Tensor target = at::full_like(stock[i + 1], 7.0).detach();
    *sink.cells[i] = {.view = target};
    const c10::NoGradGuard no_grad;
    sink.later.at(sink.cells[i].get())();
    EXPECT_TRUE(target.equal(stock[i + 1])) << i;
  }
}

TEST(Layers, InitialValuesDependOnSeedAndNameAlone) {
  const auto weight = [](const std::string& name, uint64_t seed) {
    TensorLists tensors;
    Linear(tensors, name, 8, 8, {.seed = seed});
    return tensors.parameters[0].tensor;
  };
  EXPECT_TRUE(weight("a", 1).equal(weight("a", 1)));
  EXPECT_FALSE(weight("a", 1).equal(weight("b", 1)));
  EXPECT_FALSE(weight("a", 1).equal(weight("a", 2)));
}

TEST(BatchNorm2d, StatisticsComeOutAsValuesAndChangeNothing) {
  TensorLists tensors;
  const BatchNorm2d norm(tensors, "bn", 3);
  const Tensor x = at::arange(2 * 3 * 4 * 4, at::kFloat).sin().reshape({2, 3, 4, 4});
  std::vector<Statistic> statistics;
  Context context{.statistics = &statistics};
  const Tensor y = norm(x, context);

  EXPECT_TRUE(tensors.buffers[0].tensor.equal(at::zeros({3})));
  ASSERT_EQ(statistics.size(), 2u);
  EXPECT_TRUE(at::allclose(statistics[0].value, x.mean({0, 2, 3}), 1e-4, 1e-6));
  EXPECT_TRUE(at::allclose(statistics[1].value,
                           at::var(x, at::IntArrayRef({0, 2, 3}), /*unbiased=*/true),
                           1e-3, 1e-6));
  // Stock PyTorch with running statistics gives the same output.
  Tensor mean = at::zeros({3}), var = at::ones({3});
  EXPECT_TRUE(y.equal(at::batch_norm(x, tensors.parameters[0].tensor,
                                     tensors.parameters[1].tensor, mean, var, true, 0.1,
                                     1e-5, false)));
}

class Conv2dTest : public testing::TestWithParam<std::tuple<bool, int64_t>> {};

TEST_P(Conv2dTest, GradientsAreThoseOfStockConvolution) {
  const auto [channels_last, channels] = GetParam();
  TensorLists tensors;
  const Conv2d conv(tensors, "c", channels, 5, {.kernel = 3, .stride = 2, .padding = 1},
                    {.channels_last = channels_last});
  Tensor x =
      at::arange(2 * channels * 7 * 7, at::kFloat).sin().reshape({2, channels, 7, 7});
  if (channels_last) x = x.contiguous(at::MemoryFormat::ChannelsLast);
  x.requires_grad_(true);
  const Tensor& weight = tensors.parameters[0].tensor;
  const Tensor& bias = tensors.parameters[1].tensor;
  const auto gradients = [&](const Tensor& y) {
    return torch::autograd::grad({y.square().sum()}, {x, weight, bias});
  };
  const Values ours = gradients(conv(x));
  const Values stock = gradients(at::conv2d(x, weight, bias, 2, 1));
  for (size_t i = 0; i < stock.size(); ++i)
    EXPECT_TRUE(at::allclose(ours[i], stock[i], 1e-4, 1e-4)) << i;
}

INSTANTIATE_TEST_SUITE_P(Formats, Conv2dTest,
                         testing::Combine(testing::Bool(),
                                          testing::Values(int64_t{1}, int64_t{3})));

// LibTorch's own backward writes past its buffers here, on processors without AVX-512.
TEST(Conv2d, PointsWithAStrideAndFewChannelsStayInTheirMemory) {
  for (const int64_t channels : {1, 2, 4, 7}) {
    TensorLists tensors;
    const Conv2d conv(tensors, "c", channels, 8,
                      {.kernel = 1, .stride = 2, .bias = false},
                      {.channels_last = true});
    const Tensor& weight = tensors.parameters[0].tensor;
    const Tensor x = at::arange(3 * channels * 32 * 32, at::kFloat)
                         .sin()
                         .reshape({3, channels, 32, 32})
                         .contiguous(at::MemoryFormat::ChannelsLast);
    const Tensor wide_weight = weight.detach().to(at::kDouble).requires_grad_(true);
    const Tensor wide = at::conv2d(x.to(at::kDouble), wide_weight, {}, 2);
    const auto wanted = torch::autograd::grad({wide.square().sum()}, {wide_weight});
    for (int repeat = 0; repeat < 50; ++repeat) {
      const auto found = torch::autograd::grad({conv(x).square().sum()}, {weight});
      EXPECT_TRUE(at::allclose(found[0].to(at::kDouble), wanted[0], 1e-4, 1e-4));
    }
  }
}

#if !defined(__aarch64__)
// In the other format its pooling takes many times as long.
TEST(Conv2d, ImagesOfOneChannelGiveChannelsLast) {
  TensorLists tensors;
  const Conv2d conv(tensors, "c", 1, 4, {.kernel = 3, .padding = 1}, {});
  const Tensor y = conv(at::ones({2, 1, 6, 5}));
  EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_FALSE(y.is_contiguous());
}
#endif

TEST(CrossEntropy, IsASumWithItsCount) {
  const Tensor logits = at::arange(12, at::kFloat).sin().reshape({4, 3});
  const Tensor target = at::tensor({0, 2, 1, 1}, at::kLong);
  const WeightedLoss loss = cross_entropy({logits}, target);
  EXPECT_EQ(loss.count, 4);
  EXPECT_NEAR(loss.sum.item<float>() / 4,
              at::cross_entropy_loss(logits, target).item<float>(), 1e-6);
}

}  // namespace
}  // namespace cohort
