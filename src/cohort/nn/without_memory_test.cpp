// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/without_memory.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>

#include "cohort/core/memory.h"
#include "cohort/nn/models.h"

namespace cohort {
namespace {

struct NamedModel {
  std::string name;
  std::function<Chain()> make;
};

void PrintTo(const NamedModel& model, std::ostream* out) { *out << model.name; }

std::vector<NamedModel> every_model() {
  std::vector<NamedModel> models{
      {"mlp", [] { return make_mlp({.width = 64}, {}); }},
      {"cnn", [] { return make_cnn({}, {}); }},
      {"linear_stack", [] { return make_linear_stack({.width = 8}, {}); }}};
  for (const auto& name : resnet_names())
    models.push_back({name, [name] {
                        ResNetOptions options = resnet_options(name);
                        options.width = 8;
                        return make_resnet(options, {});
                      }});
  return models;
}

void expect_same_form(const std::vector<NamedTensor>& usual,
                      const std::vector<NamedTensor>& on_meta) {
  ASSERT_EQ(usual.size(), on_meta.size());
  for (size_t i = 0; i < usual.size(); ++i) {
    const auto& [name, tensor] = usual[i];
    EXPECT_EQ(name, on_meta[i].name);
    EXPECT_TRUE(on_meta[i].tensor.is_meta()) << name;
    EXPECT_EQ(tensor.sizes(), on_meta[i].tensor.sizes()) << name;
    EXPECT_EQ(tensor.strides(), on_meta[i].tensor.strides()) << name;
    EXPECT_EQ(tensor.scalar_type(), on_meta[i].tensor.scalar_type()) << name;
    EXPECT_EQ(tensor.requires_grad(), on_meta[i].tensor.requires_grad()) << name;
  }
}

class WithoutMemory : public testing::TestWithParam<NamedModel> {};

TEST_P(WithoutMemory, AModelHasTheFormOfTheUsualOne) {
  const Chain usual = GetParam().make();
  const ModelsWithoutMemory guard;
  const Chain on_meta = GetParam().make();
  expect_same_form(usual.parameters(), on_meta.parameters());
  expect_same_form(usual.buffers(), on_meta.buffers());
}

INSTANTIATE_TEST_SUITE_P(EveryModel, WithoutMemory, testing::ValuesIn(every_model()),
                         [](const auto& info) { return info.param.name; });

TEST(ModelsWithoutMemory, TakeNone) {
  MemoryCounter counter;
  const TensorMemoryScope scope(counter);
  const ModelsWithoutMemory guard;
  const Chain chain = make_resnet(resnet_options("resnet50"), {});
  EXPECT_GT(chain.parameters().size(), 100u);
  EXPECT_LT(counter.peak(), 1'000'000);
}

TEST(ModelsWithoutMemory, EndWithTheirGuard) {
  {
    const ModelsWithoutMemory outer;
    { const ModelsWithoutMemory inner; }
    EXPECT_TRUE(make_mlp({.width = 8}, {}).parameters()[0].tensor.is_meta());
  }
  EXPECT_TRUE(make_mlp({.width = 8}, {}).parameters()[0].tensor.is_cpu());
}

TEST(ModelsWithoutMemory, AreThoseOfTheirThreadAlone) {
  const ModelsWithoutMemory guard;
  bool usual = false;
  std::thread([&] { usual = new_layer_tensor().device().is_cpu(); }).join();
  EXPECT_TRUE(usual);
}

}  // namespace
}  // namespace cohort
