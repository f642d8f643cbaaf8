// SPDX-License-Identifier: Apache-2.0
#include "recipes/saved_model.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cohort/checkpoint/save.h"
#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_folder.h"
#include "recipes/testing_recipes.h"

namespace cohort {
namespace {

using test::message_of;
using testing::AllOf;
using testing::HasSubstr;

class SavedModels : public testing::Test {
 protected:
  static Config small_config(const Recipe& recipe) {
    Config config = recipe.defaults();
    for (const char* assignment :
         {"model.width=16", "model.depth=2", "model.heads=2", "model.context=8"})
      config.set_assignment(assignment);
    return config;
  }

  // Writes a checkpoint of the model's first weights and opens it.
  Checkpoint saved(const std::string& recipe,
                   const std::map<std::string, std::string>& state) const {
    const Recipe& made = test::find_recipe(recipe);
    const Chain chain = made.make_chain(small_config(made), {});
    std::vector<StatePiece> pieces;
    for (const auto& [name, tensor] : chain.parameters())
      pieces.push_back(whole_piece(name, tensor.detach(), TensorKind::kParameter));
    const auto disk = real_disk();
    RunState run{.step = 3};
    run.state = state;
    return Checkpoint(
        CheckpointWriter(folder_ / "saved", {}, *disk).save(run, pieces).path);
  }

  test::TempFolder folder_;
};

TEST_F(SavedModels, AreMadeAnewFromACheckpointAlone) {
  for (const char* name : {"gpt-tiny", "llama-tiny", "bert-tiny"}) {
    const Recipe& recipe = test::find_recipe(name);
    const Config config = small_config(recipe);
    Checkpoint checkpoint = saved(name, model_states(recipe, config));
    const auto model = saved_model(test::recipes(), checkpoint);
    ASSERT_TRUE(model);
    EXPECT_EQ(model->recipe, &recipe);
    for (const char* key : {"model.width", "model.depth", "data.vocab"})
      EXPECT_EQ(model->config.get_int(key), config.get_int(key));
    EXPECT_EQ(model->config.get_string("data.tokenizer"), "byte");
    const Chain loaded = load_chain(*model, checkpoint);
    const Chain expected = recipe.make_chain(config, {});
    for (size_t i = 0; i < expected.parameters().size(); ++i)
      EXPECT_TRUE(
          at::equal(loaded.parameters()[i].tensor, expected.parameters()[i].tensor))
          << expected.parameters()[i].name;
  }
}

// Paths and names may hold what JSON and YAML must escape.
TEST_F(SavedModels, KeysOfAnyTextComeBack) {
  const Recipe& recipe = test::find_recipe("gpt-tiny");
  Config config = small_config(recipe);
  const std::string odd = "a \"b\" \\ #: c\td\xc3\xa9";
  config.set("data.dir", odd, "a test");
  config.set("model.dropout", "0.125", "a test");
  const auto model =
      saved_model(test::recipes(), saved("gpt-tiny", model_states(recipe, config)));
  ASSERT_TRUE(model);
  EXPECT_EQ(model->config.get_string("data.dir"), odd);
  EXPECT_EQ(model->config.get_float("model.dropout"), 0.125);
  EXPECT_EQ(model->config.get_bool("model.sequence_parallel"), true);
}

TEST_F(SavedModels, AnOlderCheckpointSaysNothing) {
  EXPECT_FALSE(saved_model(test::recipes(), saved("gpt-tiny", {})));
}

TEST_F(SavedModels, WhatThisProgramDoesNotKnowIsRefused) {
  const Checkpoint other =
      saved("gpt-tiny", {{"recipe", "gpt-teeny"}, {"settings", "{}"}});
  EXPECT_THAT(message_of<ConfigError>([&] { saved_model(test::recipes(), other); }),
              HasSubstr("nearest: gpt-tiny"));
  const Checkpoint later =
      saved("gpt-tiny", {{"recipe", "gpt-tiny"}, {"settings", R"({"model.turns":3})"}});
  EXPECT_THAT(message_of<ConfigError>([&] { saved_model(test::recipes(), later); }),
              AllOf(HasSubstr(later.path()), HasSubstr("model.turns")));
}

TEST_F(SavedModels, AnotherShapeIsRefused) {
  const Recipe& recipe = test::find_recipe("gpt-tiny");
  Checkpoint checkpoint = saved("gpt-tiny", {});
  const auto refusal = [&](const char* assignment) {
    SavedModel model{&recipe, small_config(recipe)};
    model.config.set_assignment(assignment);
    return message_of<CheckpointError>([&] { load_chain(model, checkpoint); });
  };
  EXPECT_THAT(refusal("model.width=32"),
              AllOf(HasSubstr("transformer.wte.weight"), HasSubstr("257x32")));
  EXPECT_THAT(refusal("model.depth=3"), HasSubstr("transformer.h.2"));
  EXPECT_THAT(refusal("model.depth=1"),
              AllOf(HasSubstr("has the parameter transformer.h.1"),
                    HasSubstr("gpt-tiny with these keys has none")));
}

TEST(Continuations, AreOfModelsThatForetellText) {
  const auto why = [](const char* name, std::initializer_list<const char*> set) {
    const Recipe& recipe = test::find_recipe(name);
    Config config = recipe.defaults();
    for (const char* assignment : set) config.set_assignment(assignment);
    return message_of<ConfigError>(
        [&] { test::recipes().require_continuation("who", recipe, config); });
  };
  EXPECT_EQ(why("gpt-tiny", {}), "no error");
  EXPECT_EQ(why("gpt", {}), "no error");
  EXPECT_EQ(why("llama-tiny", {"data.synthetic=true"}), "no error");
  EXPECT_EQ(why("mlp", {}),
            "who: mlp is no language model; legal: gpt, gpt-tiny, llama-tiny, on text");
  EXPECT_THAT(why("bert-tiny", {}), HasSubstr("fills in masked tokens"));
  EXPECT_THAT(why("gpt", {"data.tokenizer=none"}), HasSubstr("data.tokenizer=none"));
  EXPECT_THAT(why("gpt", {"data.synthetic=true"}), HasSubstr("has no text"));
}

}  // namespace
}  // namespace cohort
