// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/checked_recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "cohort/core/testing_error.h"

namespace cohort {
namespace {

using test::message_of;
using testing::HasSubstr;

// Gives what a test asks it to give.
struct OddRecipe final : Recipe {
  std::string_view name() const override { return "odd"; }
  std::string_view help() const override { return "of a test"; }
  Config defaults() const override { return Config(common_keys()); }
  Chain make_chain(const Config&, const TensorPart&) const override { return chain(); }
  std::unique_ptr<DataLoading> load(const Config&, bool) const override {
    return loads ? data_at_hand({}) : nullptr;
  }
  std::function<Chain()> chain;
  bool loads = true;
};

std::unique_ptr<Block> block(const std::string& name, int64_t place) {
  return std::make_unique<FunctionBlock>(
      name, TensorLists(), [](const Tensor& x, Context&) { return x; },
      fields_of_layer(place));
}

std::string refusal(const std::function<void(Chain&)>& spoil) {
  OddRecipe recipe;
  recipe.chain = [&] {
    Chain chain{.blocks = {}, .loss = classifier_loss()};
    chain.blocks.push_back(block("a", 0));
    chain.blocks.push_back(block("b", 1));
    spoil(chain);
    return chain;
  };
  return message_of<ConfigError>(
      [&] { (void)checked_chain(recipe, recipe.defaults(), {}); });
}

TEST(CheckedRecipe, RefusesAChainThatNobodyCanTrain) {
  EXPECT_EQ(refusal([](Chain&) {}), "no error");
  EXPECT_THAT(refusal([](Chain& chain) { chain.blocks.clear(); }),
              HasSubstr("is empty"));
  EXPECT_THAT(refusal([](Chain& chain) { chain.blocks[1].reset(); }),
              HasSubstr("null"));
  EXPECT_THAT(refusal([](Chain& chain) { chain.blocks[1] = block("a", 1); }),
              HasSubstr("two blocks are called 'a'"));
  EXPECT_THAT(refusal([](Chain& chain) { chain.blocks[0] = block("c", 1); }),
              HasSubstr("first block 'c' takes no field"));
  EXPECT_THAT(refusal([](Chain& chain) { chain.loss = {}; }), HasSubstr("no loss"));
}

TEST(CheckedRecipe, RefusesDataThatIsNotThere) {
  OddRecipe recipe;
  const auto loading = begin_loading(recipe, recipe.defaults(), true);
  EXPECT_THAT(
      message_of<ConfigError>([&] { (void)finish_loading(recipe, *loading, nullptr); }),
      HasSubstr("nothing to train with"));
  recipe.loads = false;
  EXPECT_THAT(message_of<ConfigError>(
                  [&] { (void)begin_loading(recipe, recipe.defaults(), true); }),
              HasSubstr("load() gives nothing"));
}

}  // namespace
}  // namespace cohort
