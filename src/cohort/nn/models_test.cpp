// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/models.h"

#include <gtest/gtest.h>

#include <set>

#include "cohort/nn/testing_chain.h"

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

using test::run;

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

TEST(ResNet, EighteenHasTorchvisionsSize) {
  const Chain chain =
      make_resnet({.depths = {2, 2, 2, 2}, .block = ResNetBlock::kBasic}, {});
  EXPECT_EQ(numel(chain.parameters()), 11689512);
  EXPECT_EQ(chain.parameters().size(), 62u);
  EXPECT_EQ(chain.buffers().size(), 40u);
}

TEST(ResNet, FiftyV2HasNormsBeforeConvolutions) {
  const Chain chain = make_resnet(
      {.classes = 10, .block = ResNetBlock::kPreActivation, .small_images = true}, {});
  const auto all = names(chain);
  EXPECT_EQ(all.count("bn1.weight"), 0u);
  for (const char* name : {"conv1.weight", "layer1.0.bn1.weight", "bn.bias",
                           "layer4.0.downsample.0.weight", "layer4.2.conv3.weight"})
    EXPECT_TRUE(all.count(name)) << name;
  EXPECT_EQ(chain.blocks[1]->parameters()[0].tensor.sizes(), (at::IntArrayRef{64}));
  EXPECT_EQ(numel(chain.parameters()), 23513162);
}

TEST(ResNet, SmallImagesKeepTheirSizeInTheStem) {
  const Chain chain =
      make_resnet({.depths = {1, 1}, .width = 8, .small_images = true}, {});
  Context context;
  const Values y = chain.blocks[0]->forward({at::ones({2, 3, 32, 32})}, context);
  EXPECT_EQ(y[0].sizes(), (at::IntArrayRef{2, 8, 32, 32}));
}

TEST(Mlp, HasTheNamesOfSequential) {
  const Chain chain =
      make_mlp({.inputs = 12, .width = 8, .depth = 2, .classes = 3}, {});
  EXPECT_EQ(names(chain), (std::set<std::string>{"0.weight", "0.bias", "3.weight",
                                                 "3.bias", "6.weight", "6.bias"}));
  EXPECT_EQ(chain.blocks.size(), 3u);
  EXPECT_EQ(numel(chain.parameters()), 12 * 8 + 8 + 8 * 8 + 8 + 8 * 3 + 3);
}

TEST(Mlp, DropsByTheSampleInTrainingAlone) {
  const Chain chain = make_mlp(
      {.inputs = 12, .width = 64, .depth = 2, .classes = 3, .dropout = 0.5}, {});
  const Tensor x = test::noise({3, 1, 3, 4}, 1);
  const std::vector<int64_t> ids = {8, 2, 5};
  const auto train = [&](int64_t row, int64_t rows) {
    return run(chain, x.narrow(0, row, rows),
               {.sample_ids = std::span(ids).subspan(row, rows)});
  };
  const Tensor whole = train(0, 3);
  EXPECT_TRUE(at::allclose(whole, at::cat({train(0, 1), train(1, 2)}), 1e-5, 1e-6));
  EXPECT_FALSE(at::allclose(whole, run(chain, x, {.phase = Phase::kEvaluate})));
}

TEST(LinearStack, LossIsTheMeanSquareOfTheOutput) {
  const Chain chain = make_linear_stack({.width = 4, .depth = 2}, {});
  const Tensor y = run(chain, at::ones({3, 4}));
  const WeightedLoss loss = chain.loss({y}, {});
  EXPECT_NEAR(loss.sum.item<float>() / loss.count, y.square().mean().item<float>(),
              1e-6);
}

}  // namespace
}  // namespace cohort
