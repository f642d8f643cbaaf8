// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/engine/block_count.h"
#include "cohort/nn/models.h"
#include "cohort/nn/without_memory.h"
#include "cohort/train/compute_threads.h"
#include "recipes/testing_recipes.h"

namespace cohort {
namespace {

using testing::HasSubstr;

Config small_config(const Recipe& recipe) {
  Config config = recipe.defaults();
  for (const char* assignment :
       {"data.synthetic=true", "model.width=8", "model.depth=1"})
    config.set_assignment(assignment);
  if (config.keys().find("model.context") >= 0)
    for (const char* assignment : {"model.context=16", "model.heads=2"})
      config.set_assignment(assignment);
  return config;
}

TEST(Recipes, EveryOneMakesAModelForItsSyntheticData) {
  for (const auto& recipe : test::recipes().all()) {
    const Config config = small_config(*recipe);
    const Chain chain = recipe->make_chain(config, {});
    const DataSets data = recipe->load(config, true)->finish(nullptr);
    const std::vector<int64_t> ids = {3, 1, 2};
    const Batch batch = data.train->gather(ids, chain.fields());
    Values values = batch.tensors(chain.blocks[0]->fields());
    Context context{.sample_ids = ids};
    for (size_t b = 0; b < chain.blocks.size(); ++b) {
      if (b > 0)
        for (const Tensor& field : batch.tensors(chain.blocks[b]->fields()))
          values.push_back(field);
      values = chain.blocks[b]->forward(values, context);
    }
    const WeightedLoss loss = chain.loss(values, batch.tensors(chain.loss.fields));
    EXPECT_TRUE(loss.sum.isfinite().item<bool>()) << recipe->name();
    EXPECT_GE(loss.count_here(), 3) << recipe->name();
    EXPECT_FALSE(recipe->help().empty());
  }
}

TEST(Recipes, WidthAndDepthScaleTheModel) {
  for (const char* name : {"mlp", "cifar-resnet50v2", "gpt-tiny", "bert"}) {
    const Recipe& recipe = test::find_recipe(name);
    Config config = small_config(recipe);
    const auto blocks = recipe.make_chain(config, {}).blocks.size();
    config.set_assignment("model.depth=2");
    EXPECT_GT(recipe.make_chain(config, {}).blocks.size(), blocks) << name;
  }
}

std::optional<std::vector<BlockCount>> count(const Recipe& recipe,
                                             const Config& config) {
  const DataSets data = recipe.load(config, true)->finish(nullptr);
  const ModelsWithoutMemory guard;
  return count_blocks(recipe.make_chain(config, {}), *data.train);
}

// One that cannot is measured when a run starts, which may take longer than a step.
TEST(Recipes, EveryOneCanBeCounted) {
  for (const auto& recipe : test::recipes().all())
    EXPECT_TRUE(count(*recipe, small_config(*recipe))) << recipe->name();
}

int threads_on_16_cores(const char* name) {
  Config config = test::find_recipe(name).defaults();
  config.set_assignment("data.synthetic=true");
  const auto counts = count(test::find_recipe(name), config).value();
  const auto batch = static_cast<double>(config.get_int("batch"));
  return compute_threads(forward_flops(counts).at(batch), 16);
}

TEST(Recipes, ThreadsFollowTheSizeOfTheModel) {
  EXPECT_EQ(threads_on_16_cores("mlp"), 3);
  EXPECT_EQ(threads_on_16_cores("fashion-mnist"), 16);
  EXPECT_EQ(threads_on_16_cores("cifar-resnet50v2"), 16);
}

Config cifar_config(std::initializer_list<const char*> assignments) {
  Config config = test::find_recipe("cifar-resnet50v2").defaults();
  config.set_assignment("data.synthetic=true");
  for (const char* assignment : assignments) config.set_assignment(assignment);
  return config;
}

std::map<std::string, std::vector<int64_t>> shapes_of(const Config& config) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [name, tensor] :
       test::find_recipe("cifar-resnet50v2").make_chain(config, {}).parameters())
    shapes[name] = tensor.sizes().vec();
  return shapes;
}

// Counts of torchvision's resnet18 and resnet50: tensors with a gradient.
TEST(Recipes, CifarTrainsTheResNetThatIsNamed) {
  using Shape = std::vector<int64_t>;
  auto shapes = shapes_of(cifar_config({"model.name=resnet18", "model.stem=large"}));
  EXPECT_EQ(shapes.size(), 62u);
  EXPECT_EQ(shapes["conv1.weight"], (Shape{64, 3, 7, 7}));
  EXPECT_EQ(shapes["layer4.1.conv2.weight"], (Shape{512, 512, 3, 3}));
  EXPECT_EQ(shapes["fc.weight"], (Shape{10, 512}));
  shapes = shapes_of(cifar_config({"model.name=resnet50"}));
  EXPECT_EQ(shapes.size(), 161u);
  EXPECT_EQ(shapes["conv1.weight"], (Shape{64, 3, 3, 3}));
  EXPECT_EQ(shapes["layer1.0.downsample.1.weight"], (Shape{256}));
  EXPECT_EQ(shapes_of(cifar_config({})),
            shapes_of(cifar_config({"model.name=resnet50v2"})));
  EXPECT_EQ(shapes_of(cifar_config({})).count("bn.weight"), 1u);  // 50V2's last norm
}

TEST(Recipes, AnUnknownResNetIsRefusedWithTheNearest) {
  const std::string said =
      test::message_of<ConfigError>([&] { cifar_config({"model.name=resnet51"}); });
  EXPECT_THAT(said, HasSubstr("legal: resnet50v2, resnet50 or resnet18"));
  EXPECT_THAT(said, HasSubstr("nearest: resnet50"));
  EXPECT_THROW(resnet_options("resnet51"), ConfigError);
}

TEST(Recipes, CifarImagesAreAugmentedWhereThatIsAskedFor) {
  const Recipe& recipe = test::find_recipe("cifar-resnet50v2");
  EXPECT_FALSE(recipe.load(cifar_config({}), true)->finish(nullptr).augment);
  const Config config = cifar_config({"data.augment=true"});
  const DataSets data = recipe.load(config, true)->finish(nullptr);
  ASSERT_TRUE(data.augment);
  const std::vector<int64_t> ids = {3, 1, 2};
  Batch batch = data.train->gather_all(ids);
  data.augment(batch, 0);
  EXPECT_EQ(batch.at("input").sizes(), (at::IntArrayRef{3, 3, 32, 32}));
  EXPECT_FALSE(batch.at("input").equal(data.train->gather_all(ids).at("input")));
}

TEST(Recipes, ZeroMeansTheRecipesOwn) {
  for (const auto& recipe : test::recipes().all()) {
    const ModelsWithoutMemory guard;
    const auto elements = [&](const Config& config) {
      int64_t sum = 0;
      for (const auto& [name, tensor] : recipe->make_chain(config, {}).parameters())
        sum += tensor.numel();
      return sum;
    };
    Config zero = recipe->defaults();
    for (const char* key : {"model.width=0", "model.depth=0"}) zero.set_assignment(key);
    EXPECT_EQ(elements(zero), elements(recipe->defaults())) << recipe->name();
  }
}

TEST(Recipes, CifarWithoutFilesSaysWhatIsExpected) {
  const Recipe& recipe = test::find_recipe("cifar-resnet50v2");
  EXPECT_THAT(test::message_of<DataError>([&] {
                (void)recipe.load(recipe.defaults(), false)->finish(nullptr);
              }),
              HasSubstr("data.dir is not set"));
}

TEST(Recipes, AnUnknownOneIsRefusedWithTheNearest) {
  const std::string said =
      test::message_of<ConfigError>([&] { test::find_recipe("cifar-resnet50"); });
  EXPECT_THAT(said, HasSubstr("nearest: cifar-resnet50v2"));
  EXPECT_THAT(
      said,
      HasSubstr("fashion-mnist, mlp, cifar-resnet50v2, gpt, gpt-tiny, llama-tiny, "
                "bert, bert-tiny"));
}

}  // namespace
}  // namespace cohort
