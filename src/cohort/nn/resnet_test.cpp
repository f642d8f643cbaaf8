// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cohort/nn/models.h"
#include "cohort/nn/testing_chain.h"

namespace cohort {
namespace {

// What is kept of a tensor: its length, and its product with noise.
struct Print {
  double length;
  double product;
};

struct Golden {
  const char* name;
  ResNetOptions options;
  int64_t size;          // height and width of the images
  double float32_bound;  // relative; large where values lie near the edge of a ReLU
  Print logits;
  double loss;
  Print evaluated;  // logits in evaluation, after that one step's statistics
  std::vector<std::pair<std::string, Print>> tensors;  // gradients, running statistics
};

void PrintTo(const Golden& golden, std::ostream* out) { *out << golden.name; }

void expect_print(const Tensor& tensor, const Print& golden, double bound,
                  const std::string& what) {
  const Tensor flat = tensor.detach().to(at::kDouble).contiguous().flatten();
  const Tensor against = test::noise(flat.sizes(), 1).to(at::kDouble);
  const double close = bound * golden.length;
  EXPECT_NEAR(flat.norm().item<double>(), golden.length, close) << what;
  EXPECT_NEAR(flat.dot(against).item<double>(), golden.product, close) << what;
}

// One forward and backward with the weights and the input of resnet_golden.py.
void expect_golden(const Golden& golden, at::ScalarType dtype, double bound) {
  const Chain chain = make_resnet(golden.options, {});
  test::set_weights(chain);
  for (const auto& [name, tensor] : chain.parameters())
    Tensor(tensor).set_data(tensor.detach().to(dtype));
  for (const auto& [name, tensor] : chain.buffers())
    Tensor(tensor).set_data(tensor.to(dtype));
  const Tensor x = test::noise({4, 3, golden.size, golden.size}, 3);
  std::vector<Statistic> statistics;
  const Tensor logits = test::run(chain, x, {.statistics = &statistics});
  const WeightedLoss loss = chain.loss({logits}, {at::tensor({1, 0, 3, 2}, at::kLong)});
  auto tensors = test::gradients(chain, loss);
  for (const auto& [buffer, value, momentum, slice] : statistics)
    buffer.mul_(1 - momentum).add_(value, momentum);
  for (const auto& [name, tensor] : chain.buffers()) tensors[name] = tensor;

  expect_print(logits, golden.logits, bound, "logits");
  EXPECT_NEAR(loss.sum.item<double>() / loss.count, golden.loss, bound * golden.loss);
  expect_print(test::run(chain, x, {.phase = Phase::kEvaluate}), golden.evaluated,
               bound, "evaluated");
  for (const auto& [name, print] : golden.tensors) {
    ASSERT_EQ(tensors.count(name), 1u) << name;
    expect_print(tensors[name], print, bound, name);
  }
}

class ResNetGolden : public testing::TestWithParam<Golden> {};

TEST_P(ResNetGolden, ForwardAndBackwardAreThoseOfPyTorch) {
  expect_golden(GetParam(), at::kDouble, 1e-8);
}

TEST_P(ResNetGolden, InFloat32ToRounding) {
  expect_golden(GetParam(), at::kFloat, GetParam().float32_bound);
}

// Made by resnet_golden.py; Eighteen and Fifty are torchvision's.
const std::vector<Golden> kGolden = {
    {.name = "Eighteen",
     .options = {.depths = {2, 2, 2, 2}, .classes = 4, .block = ResNetBlock::kBasic},
     .size = 64,
     .float32_bound = 1e-3,
     .logits = {6.78462619353, 3.23805064695},
     .loss = 1.80277476586,
     .evaluated = {43.7005739534, -0.278145368286},
     .tensors = {{"conv1.weight", {21.3792236567, 9.34897894953}},
                 {"fc.weight", {9.96182435326, 3.44392764878}},
                 {"fc.bias", {0.441117420507, -0.140434698659}},
                 {"bn1.weight", {1.51610721485, 0.577249780925}},
                 {"layer1.0.conv1.weight", {24.1360762972, -1.13775276982}},
                 {"layer2.0.downsample.0.weight", {4.38498417757, 1.54196458296}},
                 {"layer3.1.bn2.bias", {0.265601355351, -0.020975701714}},
                 {"layer4.1.conv2.weight", {11.8372157287, 8.74715131091}},
                 {"bn1.running_mean", {0.0118822107885, 0.00398288817163}},
                 {"layer4.1.bn2.running_var", {21.22023748, -0.375842572936}}}},
    {.name = "Fifty",
     .options = {.classes = 4},
     .size = 64,
     .float32_bound = 0.1,
     .logits = {9.12541034317, -1.76501579371},
     .loss = 2.49938097885,
     .evaluated = {2230.26015297, -87.1550181275},
     .tensors = {{"conv1.weight", {762.042720406, 368.444327062}},
                 {"fc.weight", {27.6453119218, -30.3482988007}},
                 {"fc.bias", {0.478689672192, -0.208597131614}},
                 {"bn1.weight", {55.3109773359, 15.0296263444}},
                 {"layer1.0.conv1.weight", {255.536127738, -73.9389422657}},
                 {"layer2.0.downsample.1.weight", {10.2047098902, -0.844011008286}},
                 {"layer3.5.bn3.bias", {0.339379890214, 0.122731743009}},
                 {"layer4.0.conv2.weight", {43.7470537907, -19.8430209392}},
                 {"bn1.running_mean", {0.0118822107885, 0.00398288817163}},
                 {"layer4.2.bn3.running_var", {44.193941258, 35.3500856931}}}},
    {.name = "SmallV2",
     .options = {.depths = {2, 1},
                 .width = 8,
                 .classes = 4,
                 .block = ResNetBlock::kPreActivation,
                 .small_images = true},
     .size = 16,
     .float32_bound = 1e-3,
     .logits = {1.93285817094, 0.43677413085},
     .loss = 1.41043500079,
     .evaluated = {3.92180638844, 0.78914401212},
     .tensors = {{"conv1.weight", {0.517203077639, 0.135250276301}},
                 {"fc.weight", {0.506812136086, 0.0087565549075}},
                 {"fc.bias", {0.143315148126, -0.0625858496145}},
                 {"layer1.0.bn1.weight", {0.144606312241, -0.107736481163}},
                 {"layer1.0.downsample.0.weight", {0.122891901124, 0.0163854337817}},
                 {"layer2.0.conv2.weight", {0.367827092751, 0.101143375868}},
                 {"layer2.0.downsample.0.weight", {0.137165170573, 0.0774184570982}},
                 {"bn.bias", {0.115381209895, 0.0348143037672}},
                 {"layer2.0.bn3.running_var", {3.91077768131, 0.565434486923}},
                 {"bn.running_mean", {0.599802382647, 0.137016879575}}}},
    {.name = "LargeV2",
     .options = {.depths = {1, 2},
                 .width = 8,
                 .classes = 4,
                 .block = ResNetBlock::kPreActivation},
     .size = 64,
     .float32_bound = 1e-3,
     .logits = {1.9379221789, 0.0478009537477},
     .loss = 1.39685022202,
     .evaluated = {6.69867026689, 0.333299848039},
     .tensors = {{"conv1.weight", {1.81583763949, -0.105243717326}},
                 {"fc.weight", {0.563465298383, -0.143717709827}},
                 {"fc.bias", {0.140074128533, -0.0602247247852}},
                 {"layer1.0.bn1.weight", {0.113366885983, -0.0410480737199}},
                 {"layer1.0.downsample.0.weight", {0.133971000574, -0.115194997566}},
                 {"layer2.0.conv2.weight", {0.44007100768, 0.11272399717}},
                 {"layer2.0.downsample.0.weight", {0.210663292686, -0.00735508478595}},
                 {"bn.bias", {0.118883134653, 0.0463022534832}},
                 {"layer2.0.bn3.running_var", {3.88744947597, 0.574551540417}},
                 {"bn.running_mean", {0.78118931525, -0.815365460483}}}},
};

INSTANTIATE_TEST_SUITE_P(Models, ResNetGolden, testing::ValuesIn(kGolden),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cohort
