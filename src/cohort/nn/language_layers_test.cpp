// SPDX-License-Identifier: Apache-2.0
// Layers of language models against stock operations of PyTorch.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>

#include "cohort/nn/attention.h"
#include "cohort/nn/cross_entropy_function.h"
#include "cohort/nn/language_models.h"
#include "cohort/nn/testing_language.h"
#include "cohort/nn/testing_targets.h"
#include "cohort/nn/transformer_layers.h"
#include "cohort/step/gradient_target.h"

namespace cohort {
namespace {

// More than one chunk of the fused cross entropy.
constexpr int64_t kRows = 100, kColumns = 5000;

double furthest_part(const Tensor& a, const Tensor& b) {
  const Tensor wide = b.to(at::kDouble);
  return ((a.to(at::kDouble) - wide).abs().max() / wide.abs().max()).item<double>();
}

struct LossAndGradient {
  Tensor sum, count, gradient;
};

LossAndGradient fused_loss(const Tensor& given, const Tensor& target, double factor,
                           int64_t columns = kColumns) {
  const Tensor leaf = given.detach().clone().requires_grad_(true);
  Context context;
  const TokenLoss loss = token_loss(
      leaf * 1, target, {.first = 0, .count = columns, .room = columns}, {}, context);
  return {loss.sum, loss.count, torch::autograd::grad({loss.sum * factor}, {leaf})[0]};
}

LossAndGradient stock_loss(const Tensor& given, const Tensor& target, double factor) {
  const Tensor leaf = given.to(at::kDouble).detach().requires_grad_(true);
  const Tensor sum = at::cross_entropy_loss(leaf, target, {}, at::Reduction::Sum);
  return {sum, target.ne(-100).sum(), torch::autograd::grad({sum * factor}, {leaf})[0]};
}

Tensor some_targets() {
  Tensor target = test::noise({kRows}, 5).add(1).mul(kColumns / 2.0).to(at::kLong);
  target.narrow(0, 40, 20).fill_(-100);
  return target;
}

TEST(TokenLoss, IsTheCrossEntropyOfPyTorchInEveryPrecision) {
  const std::pair<at::ScalarType, double> cases[] = {{at::kDouble, 1e-13},
                                                     {at::kFloat, 1e-5},
                                                     {at::kBFloat16, 8e-3},
                                                     {at::kHalf, 1e-3}};
  for (const auto& [dtype, bound] : cases)
    for (const double factor : {1.0, 1024.0, -3.0}) {
      const Tensor logits = (8 * test::noise({kRows, kColumns}, 2)).to(dtype);
      const Tensor target = some_targets();
      const auto ours = fused_loss(logits, target, factor);
      const auto stock = stock_loss(logits, target, factor);
      EXPECT_EQ(ours.sum.scalar_type(),
                dtype == at::kDouble ? at::kDouble : at::kFloat);
      EXPECT_LT(furthest_part(ours.sum, stock.sum), std::min(bound, 1e-6)) << dtype;
      EXPECT_EQ(ours.count.item<double>(), kRows - 20);
      EXPECT_EQ(ours.gradient.scalar_type(), dtype);
      EXPECT_LT(furthest_part(ours.gradient, stock.gradient), bound)
          << dtype << " " << factor;
    }
}

TEST(TokenLoss, ColumnsOfPaddingCountForNothing) {
  const Tensor logits = 8 * test::noise({kRows, kColumns}, 2);
  const Tensor target = some_targets().clamp_max(kColumns - 8);
  const auto ours = fused_loss(logits, target, 1, kColumns - 7);
  const auto stock = stock_loss(logits.narrow(1, 0, kColumns - 7), target, 1);
  EXPECT_LT(furthest_part(ours.sum, stock.sum), 1e-6);
  EXPECT_LT(furthest_part(ours.gradient.narrow(1, 0, kColumns - 7), stock.gradient),
            1e-5);
  EXPECT_TRUE(ours.gradient.narrow(1, kColumns - 7, 7).eq(0).all().item<bool>());
}

TEST(TokenLoss, TakesLogitsOfAnySize) {
  const Tensor logits = (1e4 * test::noise({kRows, kColumns}, 2));
  const auto ours = fused_loss(logits, some_targets(), 1);
  EXPECT_LT(furthest_part(ours.sum, stock_loss(logits, some_targets(), 1).sum), 1e-6);
  EXPECT_TRUE(ours.gradient.isfinite().all().item<bool>());
}

TEST(Projection, GradientsAreBornInTheirTargetsInEitherOrderOfWeights) {
  for (const auto order : {WeightOrder::kOutIn, WeightOrder::kInOut})
    for (const bool bias : {true, false})
      for (const bool accumulate : {true, false}) {
        TensorLists tensors;
        const Projection layer(tensors, "f",
                               {.in = 5, .out = 3, .bias = bias, .order = order}, {});
        Values wanted;
        for (const auto& [name, tensor] : tensors.parameters) wanted.push_back(tensor);
        const Tensor x = test::noise({2, 4, 5}, 3).requires_grad_(true);
        wanted.push_back(x);
        Context plain;
        test::SevenEverywhere sink;
        sink.accumulate = accumulate;
        Context born{.grads = &sink};
        const auto stock =
            torch::autograd::grad({layer(x, plain).square().sum()}, wanted);
        const auto ours =
            torch::autograd::grad({layer(x, born).square().sum()}, wanted);
        for (size_t i = 0; i + 1 < wanted.size(); ++i) {
          const Tensor target = sink.targets[wanted[i].unsafeGetTensorImpl()];
          EXPECT_EQ(ours[i].data_ptr(), target.data_ptr());
          EXPECT_TRUE(
              at::allclose(target - (accumulate ? 7 : 0), stock[i], 1e-5, 1e-5));
        }
        EXPECT_TRUE(at::allclose(ours.back(), stock.back(), 1e-5, 1e-6));
      }
}

// As an engine runs a model whose vocabulary is padded, and whose head has a bias.
TEST(TokenLoss, MayFollowALayerThatWritesGradientsToTheirTargets) {
  const BertOptions model{.vocab = 128,
                          .context = 8,
                          .width = 12,
                          .depth = 1,
                          .heads = 3,
                          .hidden = 16,
                          .dropout = 0};
  const test::Text text = test::Text::of(2, 8, 128);
  const auto gradients = [&](GradSink* sink) {
    const Chain chain = make_bert(model, {.seed = 2});
    return test::gradients(chain, test::loss_of(chain, text, {.grads = sink}));
  };
  test::SevenEverywhere sink;
  const auto stock = gradients(nullptr), born = gradients(&sink);
  for (const auto& [name, gradient] : stock)
    EXPECT_TRUE(at::allclose(gradient, born.at(name), 1e-4, 1e-6)) << name;
}

// So small a share falls that none does.
TEST(Attention, ByStepsIsTheFusedOne) {
  const Tensor q = test::noise({2, 6, 4, 8}, 1), k = test::noise({2, 6, 2, 8}, 2),
               v = test::noise({2, 6, 2, 8}, 3);
  const Tensor segments = at::arange(6).div(4, "floor").expand({2, -1});
  const std::vector<int64_t> ids = {1, 2};
  for (const bool causal : {true, false})
    for (const Tensor& with : {Tensor(), segments}) {
      Context context{.sample_ids = ids};
      const Attention fused({.heads = 4, .causal = causal}, {});
      const Attention by_steps(
          {.heads = 4, .causal = causal, .dropout = 1e-7, .name = "a"}, {});
      EXPECT_TRUE(at::allclose(fused(q, k, v, with, context),
                               by_steps(q, k, v, with, context), 1e-5, 1e-6))
          << causal << with.defined();
    }
}

TEST(Rotary, ProductsDependOnTheDistanceAlone) {
  const Tensor x = test::noise({1, 1, 1, 8}, 1).expand({1, 9, 1, 8});
  const Tensor y = test::noise({1, 1, 1, 8}, 2).expand({1, 9, 1, 8});
  const Tensor a = rotate(x, 10000)[0].squeeze(1), b = rotate(y, 10000)[0].squeeze(1);
  const Tensor products = a.matmul(b.t());
  for (int64_t i = 0; i + 3 < 9; ++i)
    EXPECT_NEAR(products[i + 3][i].item<double>(), products[3][0].item<double>(), 1e-5);
  EXPECT_TRUE(at::allclose(a[0], x[0][0][0]));
}

TEST(LanguagePrecision, NarrowModelsAreThoseOfFloat32WithinRounding) {
  const test::Text text = test::Text::of(4, 16, 64);
  for (const auto& [dtype, bound] :
       {std::pair{at::kBFloat16, 0.1}, std::pair{at::kHalf, 0.02}}) {
    const auto gradients = [&, dtype = dtype](at::ScalarType kept) {
      const Chain chain = make_gpt(
          {.vocab = 64, .context = 16, .width = 32, .depth = 2, .heads = 4}, {});
      for (const auto& [name, tensor] : chain.parameters())
        Tensor(tensor).set_data((tensor.detach() * 5).to(dtype).to(kept));
      return test::gradients(chain, test::loss_of(chain, text));
    };
    const auto wide = gradients(at::kFloat), narrow = gradients(dtype);
    for (const auto& [name, gradient] : narrow) {
      EXPECT_EQ(gradient.scalar_type(), dtype) << name;
      EXPECT_LT(furthest_part(gradient, wide.at(name)), bound) << name;
    }
  }
}

}  // namespace
}  // namespace cohort
