// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/models.h"

#include <gtest/gtest.h>

#include <set>

namespace cohort {
namespace {

int64_t numel(const std::vector<NamedTensor>& tensors) {
  int64_t sum = 0;
  for (const auto& [name, tensor] : tensors) sum += tensor.numel();
  return sum;
}

std::set<std::string> names(const Chain& chain) {
  std::set<std::string> all;
  for (const auto& [name, tensor] : chain.parameters()) all.insert(name);
  return all;
}

Tensor run(const Chain& chain, Tensor x, Context context = {}) {
  Values values{x};
  for (const auto& block : chain.blocks) values = block->forward(values, context);
  return values[0];
}

TEST(Cnn, HasTheNamesAndShapesOfThePyTorchBaseline) {
  const Chain chain = make_cnn({}, {});
  EXPECT_EQ(names(chain),
            (std::set<std::string>{"c1.weight", "c1.bias", "c2.weight", "c2.bias",
                                   "f1.weight", "f1.bias", "f2.weight", "f2.bias"}));
  EXPECT_EQ(numel(chain.parameters()), 421642);
  EXPECT_EQ(run(chain, at::zeros({3, 1, 28, 28})).sizes(), (at::IntArrayRef{3, 10}));
}

TEST(Cnn, ChannelsLastGivesTheSameValues) {
  const Tensor x = at::arange(2 * 28 * 28, at::kFloat).sin().reshape({2, 1, 28, 28});
  const Tensor last = run(make_cnn({}, {.seed = 3, .channels_last = true}), x);
  const Tensor first = run(make_cnn({}, {.seed = 3, .channels_last = false}), x);
  EXPECT_TRUE(at::allclose(last, first, 1e-4, 1e-5));
}

TEST(ResNet, FiftyHasTorchvisionsNamesAndSize) {
  const Chain chain = make_resnet({}, {});
  EXPECT_EQ(numel(chain.parameters()), 25557032);
  EXPECT_EQ(chain.parameters().size(), 161u);
  EXPECT_EQ(chain.buffers().size(), 106u);
  const auto all = names(chain);
  for (const char* name : {"conv1.weight", "bn1.bias", "layer1.0.downsample.0.weight",
                           "layer4.2.bn3.weight", "fc.bias"})
    EXPECT_TRUE(all.count(name)) << name;
}

TEST(ResNet, SmallOneRunsInBothPhases) {
  const Chain chain = make_resnet({.depths = {1, 1}, .width = 8, .classes = 4}, {});
  const Tensor x = at::arange(2 * 3 * 32 * 32, at::kFloat).sin().reshape({2, 3, 32, 32});
  EXPECT_EQ(run(chain, x).sizes(), (at::IntArrayRef{2, 4}));
  EXPECT_EQ(run(chain, x, {.phase = Phase::kEvaluate}).sizes(), (at::IntArrayRef{2, 4}));
}

TEST(LinearStack, LossIsTheMeanSquareOfTheOutput) {
  const Chain chain = make_linear_stack({.width = 4, .depth = 2}, {});
  const Tensor y = run(chain, at::ones({3, 4}));
  const WeightedLoss loss = chain.loss({y}, {});
  EXPECT_NEAR(loss.sum.item<float>() / loss.count, y.square().mean().item<float>(), 1e-6);
}

}  // namespace
}  // namespace cohort
