// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"

namespace cohort {
namespace {

using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int64_t> encoded(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<uint16_t> tokens;
  tokenizer.encode(text, tokens);
  return {tokens.begin(), tokens.end()};
}

// What one expects of text, and what one does not.
std::vector<std::string> texts() {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  return {"", "In the beginning\n", "  two  blanks, a\ttab \r\n\n\nand no line end",
          "caf\xc3\xa9 \xe2\x96\x81 <mask> </s> <unk> <0x41>", all + "\n" + all};
}

std::string verses() {
  std::string text;
  for (int i = 0; i < 200; ++i)
    text += cohort::text("And in the year ", i, " he begat sons and daughters:\n");
  return text;
}

TEST(ByteTokenizer, TokensAreBytes) {
  const auto tokenizer = make_byte_tokenizer();
  EXPECT_EQ(tokenizer->vocabulary().size, 257);
  EXPECT_EQ(tokenizer->vocabulary().end_of_text, 256);
  EXPECT_EQ(tokenizer->vocabulary().size_with_mask(), 258);
  EXPECT_THAT(encoded(*tokenizer, "a\xff"), ElementsAre(97, 255));
  for (const auto& text : texts())
    EXPECT_EQ(tokenizer->decode(encoded(*tokenizer, text)), text);
  EXPECT_EQ(tokenizer->decode(std::vector<int64_t>{72, 256, 257, 105}), "Hi");
}

TEST(BpeTokenizer, LosesNoByteOfAnyText) {
  const auto tokenizer = make_bpe_tokenizer(train_bpe(verses(), 400), "test");
  EXPECT_EQ(tokenizer->vocabulary().size, 400);
  EXPECT_EQ(tokenizer->vocabulary().size_with_mask(), 400);
  for (const auto& text : texts()) {
    const auto tokens = encoded(*tokenizer, text);
    EXPECT_EQ(tokenizer->decode(tokens), text);
    for (const int64_t token : tokens)
      EXPECT_TRUE(token >= tokenizer->vocabulary().begin && token < 400) << token;
  }
}

TEST(BpeTokenizer, JoinsWhatIsFrequent) {
  const auto tokenizer = make_bpe_tokenizer(train_bpe(verses(), 400), "test");
  EXPECT_LT(3 * encoded(*tokenizer, verses()).size(), verses().size());
  const auto& words = tokenizer->vocabulary();
  EXPECT_EQ(tokenizer->decode(std::vector<int64_t>{words.end_of_text, words.mask, -1,
                                                   400, words.begin + 'x'}),
            "x");
}

TEST(BpeTokenizer, OfTheSameTextIsTheSame) {
  EXPECT_EQ(train_bpe(verses(), 320), train_bpe(verses(), 320));
}

TEST(BpeTokenizer, AVocabularyThatDoesNotFitTheTextIsRefused) {
  EXPECT_THAT(message_of<DataError>([] { train_bpe("a b c\n", 2000); }),
              HasSubstr("data.vocab=2000 for a text of 6 bytes: Vocabulary size too "
                        "high (2000). Please set it to a value <= 2"));
  EXPECT_THAT(message_of<DataError>([] { train_bpe("a b c\n", 100); }),
              HasSubstr("Vocabulary size is smaller"));
  EXPECT_THAT(message_of<DataError>([] { make_bpe_tokenizer("no model", "a.model"); }),
              HasSubstr("a.model: no model of SentencePiece"));
}

}  // namespace
}  // namespace cohort
