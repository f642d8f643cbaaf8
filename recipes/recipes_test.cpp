// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "recipes/recipe.h"

namespace cohort {
namespace {

using testing::HasSubstr;

Config small_config(const Recipe& recipe) {
  Config config = recipe.defaults();
  for (const char* assignment :
       {"data.synthetic=true", "model.width=4", "model.depth=1"})
    config.set_assignment(assignment);
  return config;
}

TEST(Recipes, EveryOneMakesAModelForItsSyntheticData) {
  for (const Recipe* recipe : all_recipes()) {
    const Config config = small_config(*recipe);
    const Chain chain = recipe->make_chain(config);
    const DataSets data = recipe->load(config, true)->finish(nullptr);
    const std::vector<int64_t> ids = {3, 1, 2};
    const Batch batch = data.train->gather(ids);
    Values values{batch.input};
    Context context{.sample_ids = ids};
    for (const auto& block : chain.blocks) values = block->forward(values, context);
    EXPECT_EQ(values[0].sizes(), (at::IntArrayRef{3, 10})) << recipe->name();
    EXPECT_TRUE(chain.loss(values, batch.target).sum.isfinite().item<bool>());
    EXPECT_FALSE(recipe->help().empty());
  }
}

TEST(Recipes, WidthAndDepthScaleTheModel) {
  for (const char* name : {"mlp", "cifar-resnet50v2"}) {
    const Recipe& recipe = find_recipe(name);
    Config config = small_config(recipe);
    const auto blocks = recipe.make_chain(config).blocks.size();
    config.set_assignment("model.depth=2");
    EXPECT_GT(recipe.make_chain(config).blocks.size(), blocks) << name;
  }
}

TEST(Recipes, ZeroMeansTheRecipesOwn) {
  for (const Recipe* recipe : all_recipes()) {
    const auto elements = [&](const Config& config) {
      int64_t sum = 0;
      for (const auto& [name, tensor] : recipe->make_chain(config).parameters())
        sum += tensor.numel();
      return sum;
    };
    Config zero = recipe->defaults();
    for (const char* key : {"model.width=0", "model.depth=0"}) zero.set_assignment(key);
    EXPECT_EQ(elements(zero), elements(recipe->defaults())) << recipe->name();
  }
}

TEST(Recipes, CifarWithoutFilesSaysWhatIsExpected) {
  const Recipe& recipe = find_recipe("cifar-resnet50v2");
  try {
    (void)recipe.load(recipe.defaults(), false)->finish(nullptr);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("data.dir is not set"));
  }
}

TEST(Recipes, AnUnknownOneIsRefusedWithTheNearest) {
  try {
    find_recipe("cifar-resnet50");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("nearest: cifar-resnet50v2"));
    EXPECT_THAT(error.what(), HasSubstr("fashion-mnist, mlp, cifar-resnet50v2"));
  }
}

}  // namespace
}  // namespace cohort
