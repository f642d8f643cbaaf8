// SPDX-License-Identifier: Apache-2.0
#include "cli/sample_command.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/shown_text.h"
#include "cohort/checkpoint/save.h"
#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_folder.h"
#include "recipes/saved_model.h"
#include "recipes/testing_recipes.h"

namespace cohort::cli {
namespace {

using test::message_of;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class SampleCommand : public testing::Test {
 protected:
  // A small model's first weights; `says`: of which model they are.
  std::string save(const std::string& name, int64_t step, bool says = true,
                   std::vector<std::string> set = {}) {
    const Recipe& recipe = test::find_recipe(name);
    Config config = recipe.defaults();
    set.insert(set.end(),
               {"model.width=16", "model.depth=1", "model.heads=2", "model.context=8"});
    for (const auto& assignment : set) config.set_assignment(assignment);
    const Chain chain = recipe.make_chain(config, {});
    std::vector<StatePiece> pieces;
    for (const auto& [parameter, tensor] : chain.parameters())
      pieces.push_back(whole_piece(parameter, tensor.detach(), TensorKind::kParameter));
    RunState run{.step = step, .seed = 5};
    if (says) run.state = model_states(recipe, config);
    const auto disk = real_disk();
    return CheckpointWriter(root_, {}, *disk).save(run, pieces).path;
  }

  static std::string said(const SampleArgs& args) {
    std::ostringstream out;
    EXPECT_EQ(run_sample(args, test::recipes(), out), 0);
    return out.str();
  }
  template <typename Kind = ConfigError>
  static std::string refusal(const SampleArgs& args) {
    return message_of<Kind>([&] { said(args); });
  }

  test::TempFolder folder_;
  const std::string root_ = folder_ / "saved";
};

TEST_F(SampleCommand, ContinuesATextTheSameForOneSeed) {
  for (const char* recipe : {"gpt-tiny", "llama-tiny"}) {
    save(recipe, 1);
    SampleArgs args{.path = root_, .prompt = "In the beginning"};  // beyond its context
    args.tokens = "12";
    const std::string first = said(args);
    EXPECT_THAT(first, StartsWith("In the beginning"));
    EXPECT_EQ(said(args), first);
    args.seed = "5";  // that of the run
    EXPECT_EQ(said(args), first);
    args.seed = "6";
    EXPECT_NE(said(args), first);
    args.seed.reset();
    args.set = {"seed=6"};
    EXPECT_NE(said(args), first);
  }
}

TEST_F(SampleCommand, TakesTheNewestOfAFolderAndTellsPrograms) {
  save("gpt-tiny", 1);
  const std::string newest = save("gpt-tiny", 20);
  SampleArgs args{.path = root_, .prompt = "", .json = true};
  args.tokens = "3";
  args.temperature = "0";
  const auto told = nlohmann::json::parse(said(args));
  EXPECT_EQ(told["checkpoint"], newest);
  EXPECT_EQ(told["step"], 20);
  EXPECT_EQ(told["recipe"], "gpt-tiny");
  EXPECT_EQ(told["seed"], 5);
  EXPECT_EQ(told["prompt"], "");
  EXPECT_LE(told["tokens"], 3);
  EXPECT_GT(told["tokens_per_second"], 0);
  args.path = root_ + "/step-00000001/";
  EXPECT_EQ(nlohmann::json::parse(said(args))["step"], 1);
}

TEST_F(SampleCommand, AnOlderCheckpointNeedsItsRecipe) {
  const std::string path = save("gpt-tiny", 1, /*says=*/false);
  SampleArgs args{.path = root_, .prompt = "a"};
  EXPECT_THAT(refusal(args), AllOf(HasSubstr(path), HasSubstr("legal: --recipe R")));
  args.recipe = "gpt-tiny";
  EXPECT_THAT(refusal<CheckpointError>(args), HasSubstr("expected 257x128"));
  args.set = {"model.width=16", "model.depth=1", "model.heads=2", "model.context=8"};
  EXPECT_THAT(said(args), StartsWith("a"));
}

TEST_F(SampleCommand, RefusesInOneLine) {
  EXPECT_THAT(refusal<CheckpointError>({.path = root_, .prompt = "a"}),
              AllOf(HasSubstr(root_), HasSubstr("is no checkpoint")));
  save("gpt-tiny", 1);
  SampleArgs args{.path = root_, .prompt = "a"};
  args.temperature = "-1";
  EXPECT_THAT(refusal(args), AllOf(HasSubstr("--temperature"), HasSubstr("-1")));
  args.temperature.reset();
  args.tokens = "0";
  EXPECT_THAT(refusal(args), HasSubstr("--tokens"));
  args.tokens.reset();
  args.top_p = "1.5";
  EXPECT_THAT(refusal(args), HasSubstr("--top-p"));
  args.top_p.reset();
  args.recipe = "llama-tiny";
  EXPECT_THAT(refusal(args), HasSubstr("is of recipe gpt-tiny"));
  save("bert-tiny", 2);
  EXPECT_THAT(refusal({.path = root_, .prompt = "a"}),
              AllOf(HasSubstr("bert-tiny fills in masked tokens"),
                    HasSubstr("legal: gpt, gpt-tiny, llama-tiny")));
}

TEST_F(SampleCommand, AModelOfBytePairsNeedsItsTokenizer) {
  save("gpt-tiny", 1, /*says=*/true, {"data.tokenizer=bpe", "data.vocab=300"});
  EXPECT_THAT(refusal<CheckpointError>({.path = root_, .prompt = "a"}),
              HasSubstr(root_ + "/tokenizer.model"));
}

TEST(ShownText, HasNoControlCharactersButLineEndsAndTabs) {
  EXPECT_EQ(shown_text(std::string("a\x1b[2J\n\tb\0\x7f\xc3\xa9", 12)),
            "a?[2J\n\tb??\xc3\xa9");
}

// As one of their bytes some terminals take them for the begin of a command.
TEST(ShownText, HasNoControlCharactersBehindAscii) {
  EXPECT_EQ(shown_text("a\xc2\x9b"
                       "2J\xc2\xa0\xc3\x9b"),
            "a?2J\xc2\xa0\xc3\x9b");
}

TEST(ShownText, IsUtf8WhereverItsPiecesEnd) {
  const std::string word = "\xf0\x9f\x98\x80";
  ShownText shown;
  std::string all;
  for (const char byte : "x" + word) all += shown.add({&byte, 1});
  EXPECT_EQ(all, "x" + word);
  const std::string none = "\xef\xbf\xbd";
  EXPECT_EQ(shown_text("\xff"
                       "a\xf0\x9f"),
            none + "a" + none + none);
  EXPECT_EQ(shown_text("\xed\xa0\x80"), none + none + none);  // a surrogate
}

}  // namespace
}  // namespace cohort::cli
