// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "cohort/core/error.h"
#include "cohort/nn/language_models.h"
#include "cohort/nn/testing_language.h"

namespace cohort {
namespace {

using test::Text;

GptOptions small_gpt() {
  return {.vocab = 19, .context = 8, .width = 12, .depth = 2, .heads = 3};
}

TEST(Gpt, HasTheNamesAndShapesOfHuggingFace) {
  const Chain chain = make_gpt(small_gpt(), {});
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [name, tensor] : chain.parameters())
    shapes[name] = tensor.sizes().vec();
  EXPECT_EQ(shapes.size(), 4 + 2 * 12u);
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(shapes["transformer.wte.weight"], (Shape{19, 12}));
  EXPECT_EQ(shapes["transformer.wpe.weight"], (Shape{8, 12}));
  EXPECT_EQ(shapes["transformer.h.1.attn.c_attn.weight"], (Shape{12, 36}));
  EXPECT_EQ(shapes["transformer.h.1.attn.c_attn.bias"], (Shape{36}));
  EXPECT_EQ(shapes["transformer.h.0.mlp.c_proj.weight"], (Shape{48, 12}));
  EXPECT_EQ(shapes["transformer.ln_f.bias"], (Shape{12}));
}

TEST(Gpt, BeginsWithTheLossOfAGuess) {
  const Chain chain = make_gpt(small_gpt(), {});
  const Text text = Text::of(3, 8, 19);
  const WeightedLoss loss = test::loss_of(chain, text);
  EXPECT_EQ(loss.count_here(), 24);
  EXPECT_NEAR(loss.sum.item<double>() / loss.count_here(), std::log(19), 0.05);
}

TEST(Gpt, IgnoredTargetsCountForNothing) {
  const Chain chain = make_gpt(small_gpt(), {});
  Text text = Text::of(2, 8, 19), half = text;
  half.target = text.target.clone();
  half.target[1].fill_(-100);
  const WeightedLoss loss = test::loss_of(chain, half);
  EXPECT_EQ(loss.count_here(), 8);
  Text first{text.tokens.narrow(0, 0, 1), text.target.narrow(0, 0, 1)};
  EXPECT_NEAR(loss.sum.item<double>(), test::loss_of(chain, first).sum.item<double>(),
              1e-4);
}

TEST(Gpt, LogitsGiveTheSameLoss) {
  const Chain chain = make_gpt(small_gpt(), {.seed = 3});
  const Text text = Text::of(2, 8, 19);
  const Tensor logits = test::logits_of(chain, text);
  ASSERT_EQ(logits.sizes().vec(), (std::vector<int64_t>{2, 8, 19}));
  const Tensor expected = at::cross_entropy_loss(
      logits.flatten(0, 1), text.target.flatten(), {}, at::Reduction::Sum);
  EXPECT_NEAR(test::loss_of(chain, text).sum.item<double>(), expected.item<double>(),
              1e-4);
}

TEST(Gpt, SeesNothingOfWhatComesLaterAndNothingOfOtherSegments) {
  GptOptions options = small_gpt();
  options.segments = true;
  const Chain chain = make_gpt(options, {});
  Text text = Text::of(1, 8, 19);
  text.segments = at::tensor({0, 0, 0, 1, 1, 1, 2, 2}, at::kLong).unsqueeze(0);
  const Tensor before = test::logits_of(chain, text);
  text.tokens = text.tokens.clone();
  text.tokens[0][4] = (text.tokens[0][4] + 1) % 19;
  const Tensor changed =
      (test::logits_of(chain, text) - before).abs().amax(-1)[0].gt(0);
  EXPECT_TRUE(at::equal(changed, at::tensor({0, 0, 0, 0, 1, 1, 0, 0}).to(at::kBool)))
      << changed;
}

TEST(Gpt, SizesAreKnownByName) {
  EXPECT_EQ(gpt_options("1.5B").heads, 25);
  EXPECT_EQ(gpt_options("tiny").depth, 6);
  EXPECT_THROW(gpt_options("124"), ConfigError);
}

TEST(Gpt, RefusesShapesThatAreNone) {
  GptOptions options = small_gpt();
  options.heads = 5;
  EXPECT_THROW(make_gpt(options, {}), ConfigError);
  options.heads = 0;
  EXPECT_THROW(make_gpt(options, {}), ConfigError);
}

}  // namespace
}  // namespace cohort
