// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_folder.h"
#include "cohort/core/testing_variable.h"
#include "cohort/data/testing_node.h"
#include "cohort/data/token_dataset.h"
#include "cohort/engine/flat_state.h"
#include "cohort/nn/without_memory.h"
#include "recipes/testing_recipes.h"

namespace cohort {
namespace {

using test::message_of;
using testing::AllOf;
using testing::HasSubstr;

Config config_of(const Recipe& recipe, std::initializer_list<std::string> assignments) {
  Config config = recipe.defaults();
  for (const auto& assignment : assignments) config.set_assignment(assignment);
  return config;
}

int64_t parameters_of(const Recipe& recipe,
                      std::initializer_list<std::string> assignments = {}) {
  const ModelsWithoutMemory guard;
  int64_t sum = 0;
  for (const auto& [name, tensor] :
       recipe.make_chain(config_of(recipe, assignments), {}).parameters())
    sum += tensor.numel();
  return sum;
}

class LanguageModels : public testing::Test {
 protected:
  LanguageModels() {
    std::filesystem::create_directories(dir_);
    std::ofstream(dir_ + "/a.txt") << story(40);
    std::ofstream(dir_ + "/b.txt") << story(40);
  }
  static std::string story(int lines) {
    std::string out;
    for (int i = 0; i < lines; ++i) out += text("and he begat son number ", i, "\n");
    return out;
  }

  test::TempFolder folder_;
  std::string dir_ = folder_ / "text";
  std::string cache_ = folder_ / "cache";
  test::WithVariable variable_{"COHORT_CACHE", cache_.c_str()};
};

TEST_F(LanguageModels, HaveTheSizesThatTheirNamesSay) {
  const Recipe& gpt = test::find_recipe("gpt");
  EXPECT_EQ(parameters_of(gpt), parameters_of(gpt, {"model.size=124M"}));
  // As Hugging Face counts gpt2, gpt2-medium, gpt2-large and gpt2-xl.
  EXPECT_EQ(parameters_of(gpt, {"model.size=124M"}), 124'439'808);
  EXPECT_EQ(parameters_of(gpt, {"model.size=350M"}), 354'823'168);
  EXPECT_EQ(parameters_of(gpt, {"model.size=774M"}), 774'030'080);
  EXPECT_EQ(parameters_of(gpt, {"model.size=1.5B"}), 1'557'611'200);
  // The shape of GPT-3 XL with sequences of 1024: 24 layers, 2048 wide, by hand.
  constexpr int64_t kWidth = 2048, kLayer = 12 * kWidth * kWidth + 13 * kWidth;
  EXPECT_EQ(parameters_of(gpt, {"model.size=1.3B"}),
            (50'257 + 1024 + 2) * kWidth + 24 * kLayer);
  EXPECT_NEAR(parameters_of(test::find_recipe("bert")), 110e6, 2e6);
  for (const char* tiny : {"gpt-tiny", "llama-tiny", "bert-tiny"})
    EXPECT_NEAR(parameters_of(test::find_recipe(tiny)), 1.2e6, 0.2e6) << tiny;
}

TEST_F(LanguageModels, AVocabularyOfTheirOwnMakesThemLarger) {
  EXPECT_EQ(parameters_of(test::find_recipe("gpt-tiny"),
                          {"data.tokenizer=bpe", "data.vocab=357"}),
            parameters_of(test::find_recipe("gpt-tiny")) + 100 * 128);
}

// Norms and biases, and nothing else, are spared.
TEST_F(LanguageModels, OnlyMatricesDecay) {
  const ModelsWithoutMemory guard;
  for (const char* name : {"gpt-tiny", "llama-tiny", "bert-tiny"}) {
    const Recipe& recipe = test::find_recipe(name);
    const Config config = recipe.defaults();
    const DecayOptions decay{.weight_decay = 1,
                             .no_decay = config.get_string("optim.no_decay")};
    for (const auto& [parameter, tensor] : recipe.make_chain(config, {}).parameters())
      EXPECT_EQ(traits_of(parameter, tensor, decay).weight_decay > 0, tensor.dim() > 1)
          << parameter;
  }
}

TEST_F(LanguageModels, RanksOfANodeReadTheSameTokens) {
  const Recipe& recipe = test::find_recipe("gpt-tiny");
  const Config config =
      config_of(recipe, {"data.dir=" + dir_, "model.context=16", "data.pack=true"});
  test::run_node(2, [&](Communicator& node) {
    const DataSets data = recipe.load(config, node.rank() == 0)->finish(&node);
    const std::vector<int64_t> ids = {0};
    const Batch batch = data.train->gather_all(ids);
    EXPECT_EQ(batch.at("tokens")[0][0].item<int64_t>(), 'a');
    EXPECT_EQ(batch.at("target")[0][0].item<int64_t>(), 'n');
    EXPECT_EQ(batch.at("segments").sum().item<int64_t>(), 0);
    EXPECT_GT(data.valid->size(), 0);
    EXPECT_FALSE(data.augment);
  });
}

TEST_F(LanguageModels, BertFillsInOtherTokensInEveryEpochOfTraining) {
  const Recipe& recipe = test::find_recipe("bert-tiny");
  const Config config = config_of(recipe, {"data.dir=" + dir_, "model.context=20"});
  const DataSets data = recipe.load(config, true)->finish(nullptr);
  const std::vector<int64_t> ids = {1};
  const auto masked = [&](int64_t epoch) {
    Batch batch = data.train->gather_all(ids);
    data.augment(batch, epoch);
    return batch.at("target");
  };
  EXPECT_EQ(masked(0).ne(kIgnoredTarget).sum().item<int64_t>(), 3);
  EXPECT_FALSE(masked(0).equal(masked(1)));
  const Batch valid = data.valid->gather_all(ids);
  EXPECT_EQ(valid.at("target").ne(kIgnoredTarget).sum().item<int64_t>(), 3);
}

TEST_F(LanguageModels, WhatCannotBeIsRefusedBeforeRanksStart) {
  const auto refusal = [&](const char* name,
                           std::initializer_list<std::string> assignments) {
    const Recipe& recipe = test::find_recipe(name);
    return message_of<Error>([&] { recipe.prepare(config_of(recipe, assignments)); });
  };
  EXPECT_THAT(refusal("gpt-tiny", {"data.dir=" + cache_}), HasSubstr("is not there"));
  EXPECT_THAT(refusal("gpt-tiny", {"data.dir=" + dir_, "data.vocab=9"}),
              HasSubstr("data.vocab=9 with data.tokenizer=byte; legal: 0"));
  EXPECT_THAT(refusal("bert-tiny", {"data.dir=" + dir_, "model.context=900"}),
              AllOf(HasSubstr("validation"), HasSubstr("a sample needs 900")));
  EXPECT_EQ(refusal("gpt-tiny", {"data.dir=" + dir_, "model.context=16"}), "no error");
  EXPECT_EQ(refusal("gpt-tiny", {"data.dir=" + cache_, "data.synthetic=true"}),
            "no error");
}

TEST_F(LanguageModels, TheTokenizerIsKeptBesideCheckpoints) {
  const Recipe& recipe = test::find_recipe("gpt-tiny");
  const std::string saved = folder_ / "saved";
  std::filesystem::create_directories(saved);
  const auto prepare = [&](const std::string& vocabulary) {
    recipe.prepare(
        config_of(recipe, {"data.dir=" + dir_, "model.context=16", "data.tokenizer=bpe",
                           "checkpoint.dir=" + saved, "data.vocab=" + vocabulary}));
  };
  prepare("300");
  EXPECT_TRUE(std::filesystem::exists(saved + "/tokenizer.model"));
  EXPECT_NO_THROW(prepare("300"));
  EXPECT_THAT(message_of<CheckpointError>([&] { prepare("301"); }),
              AllOf(HasSubstr(saved), HasSubstr("another text or data.vocab")));
}

}  // namespace
}  // namespace cohort
