// SPDX-License-Identifier: Apache-2.0
#include "cohort/nn/continuation.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "cohort/core/error.h"

namespace cohort {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// How often each token is drawn, as shares.
std::map<int64_t, double> drawn(const std::vector<double>& logits,
                                const TokenChoice& choice) {
  constexpr int kTimes = 20'000;
  std::map<int64_t, double> shares;
  for (int i = 0; i < kTimes; ++i)
    shares[choose_token(logits, choice, i)] += 1.0 / kTimes;
  return shares;
}

TEST(TokenChoice, DrawsAsOftenAsTheModelSays) {
  const std::vector<double> logits = {std::log(0.1), std::log(0.6), std::log(0.3),
                                      kNever};
  const auto shares = drawn(logits, {});
  EXPECT_EQ(shares.size(), 3u);
  EXPECT_NEAR(shares.at(0), 0.1, 0.01);
  EXPECT_NEAR(shares.at(1), 0.6, 0.01);
  EXPECT_NEAR(shares.at(2), 0.3, 0.01);
}

TEST(TokenChoice, TemperatureSharpensAndZeroTakesTheLikeliest) {
  const std::vector<double> logits = {std::log(0.2), std::log(0.4), std::log(0.4)};
  const auto sharp = drawn(logits, {.temperature = 0.5});
  EXPECT_NEAR(sharp.at(0), 0.04 / 0.36, 0.01);
  const auto likeliest = drawn(logits, {.temperature = 0});
  EXPECT_EQ(likeliest.size(), 1u);
  EXPECT_TRUE(likeliest.contains(1));
}

TEST(TokenChoice, RareTokensAreLeftOut) {
  const std::vector<double> logits = {std::log(0.1), std::log(0.5), std::log(0.2),
                                      std::log(0.2)};
  const auto of_two = drawn(logits, {.top_k = 2});
  EXPECT_EQ(of_two.size(), 2u);
  EXPECT_NEAR(of_two.at(2), 2.0 / 7, 0.01);
  const auto of_likely = drawn(logits, {.top_p = 0.8});
  EXPECT_EQ(of_likely.size(), 3u);
  EXPECT_FALSE(of_likely.contains(0));
  EXPECT_EQ(drawn(logits, {.top_k = 100}).size(), 4u);
}

TEST(TokenChoice, DependsOnSeedAndNumberAlone) {
  const std::vector<double> logits(50, 0.0);
  const auto row = [&](uint64_t seed) {
    std::vector<int64_t> tokens;
    for (int i = 0; i < 20; ++i)
      tokens.push_back(choose_token(logits, {.seed = seed}, i));
    return tokens;
  };
  EXPECT_EQ(row(3), row(3));
  EXPECT_NE(row(3), row(4));
}

TEST(TokenChoice, LogitsThatAreNoNumbersAreRefused) {
  const std::vector<double> logits(3, std::nan(""));
  EXPECT_THROW(choose_token(logits, {}, 0), DataError);
}

class TextContinued : public testing::Test {
 protected:
  Continuation of(const std::string& prompt, int64_t tokens = 5) const {
    return {*bytes_, {.prompt = prompt, .tokens = tokens}};
  }
  static std::vector<int64_t> row(const Batch& batch, const std::string& field) {
    const Tensor all = batch.at(field).flatten();
    return {all.data_ptr<int64_t>(), all.data_ptr<int64_t>() + all.numel()};
  }

  const std::unique_ptr<Tokenizer> bytes_ = make_byte_tokenizer();
};

TEST_F(TextContinued, ReadsTheLastTokensOfItsContext) {
  const Continuation text = of("abcd");
  EXPECT_EQ(row(text.batch(3), "tokens"), (std::vector<int64_t>{'b', 'c', 'd'}));
  EXPECT_EQ(row(text.batch(3), "places"), (std::vector<int64_t>{2}));
  const Batch padded = text.batch(6, 6);
  EXPECT_EQ(row(padded, "tokens"), (std::vector<int64_t>{'a', 'b', 'c', 'd', 0, 0}));
  EXPECT_EQ(row(padded, "places"), (std::vector<int64_t>{3}));
  EXPECT_EQ(padded.count, 1);
}

TEST_F(TextContinued, GrowsByTokenUntilThereAreEnough) {
  Continuation text = of("ab", 2);
  EXPECT_EQ(text.add('c'), "c");
  EXPECT_FALSE(text.is_done());
  EXPECT_EQ(text.add('d'), "d");
  EXPECT_TRUE(text.is_done());
  EXPECT_EQ(text.text(), "cd");
  EXPECT_EQ(row(text.batch(9), "tokens"), (std::vector<int64_t>{'a', 'b', 'c', 'd'}));
}

TEST_F(TextContinued, EndsWithItsDocument) {
  Continuation text = of("a");
  EXPECT_EQ(text.add(bytes_->vocabulary().end_of_text), "");
  EXPECT_TRUE(text.is_done());
  EXPECT_EQ(text.tokens(), 1);
}

TEST_F(TextContinued, WithoutATextANewDocumentBegins) {
  EXPECT_EQ(row(of("").batch(4), "tokens"), (std::vector<int64_t>{256}));
}

// A model may know more tokens than its tokenizer.
TEST_F(TextContinued, OnlyTokensOfTheTokenizerAreDrawn) {
  const Continuation text(*bytes_, {.prompt = "a", .choice = {.temperature = 0}});
  Tensor logits = at::zeros({1, 1, 300});
  logits[0][0][299] = 9;
  logits[0][0][77] = 5;
  EXPECT_EQ(text.choose(logits), 77);
  EXPECT_EQ(text.choose(logits.to(at::kBFloat16)), 77);
}

}  // namespace
}  // namespace cohort
