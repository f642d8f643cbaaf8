// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/token_dataset.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_folder.h"
#include "cohort/data/token_file.h"

namespace cohort {
namespace {

using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kLength = 4;

std::vector<int64_t> row(const Tensor& field, int64_t at) {
  const Tensor values = field.select(0, at);
  return {values.const_data_ptr<int64_t>(),
          values.const_data_ptr<int64_t>() + values.numel()};
}

class TokenSamples : public testing::Test {
 protected:
  std::unique_ptr<Dataset> open(const std::vector<uint16_t>& tokens,
                                TokenDatasetOptions options = {}) {
    options.length = kLength;
    const std::string path = folder_ / "tokens.bin";
    write_token_file(path, tokens);
    const std::vector<TokenStretch> stretches{{path, 0, std::ssize(tokens)}};
    return make_token_dataset(
        map_passages("test", stretches,
                     {.length = passage_length(options), .stride = kLength}),
        options);
  }

  test::TempFolder folder_;
};

std::vector<uint16_t> counted(int count) {
  std::vector<uint16_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), uint16_t{0});
  return tokens;
}

TEST_F(TokenSamples, ArePassagesWhoseTargetsAreTheNextTokens) {
  const auto data = open(counted(13));
  EXPECT_EQ(data->size(), 3);
  const Batch batch = data->gather_all(std::vector<int64_t>{2, 0});
  EXPECT_THAT(row(batch.at("tokens"), 0), ElementsAre(8, 9, 10, 11));
  EXPECT_THAT(row(batch.at("target"), 0), ElementsAre(9, 10, 11, 12));
  EXPECT_THAT(row(batch.at("tokens"), 1), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(data->fields(), ElementsAre("tokens", "target"));
  EXPECT_EQ(data->describe(), "test: 13 tokens, 3 samples of 4");
}

TEST_F(TokenSamples, TheLastNeedsATargetForItsLastToken) {
  EXPECT_EQ(open(counted(12))->size(), 2);
  EXPECT_EQ(open(counted(12), {.next = false})->size(), 3);
  EXPECT_EQ(open(counted(5))->size(), 1);
  EXPECT_THAT(message_of<DataError>([&] { open(counted(4)); }),
              HasSubstr("test: 4 tokens; a sample needs 5 (model.context)"));
}

TEST_F(TokenSamples, OfATextToFillInHaveItsOwnTokensAsTargets) {
  const auto data = open(counted(8), {.next = false});
  const Batch batch = data->gather_all(std::vector<int64_t>{1});
  EXPECT_TRUE(batch.at("tokens").equal(batch.at("target")));
  EXPECT_THAT(row(batch.at("tokens"), 0), ElementsAre(4, 5, 6, 7));
}

TEST_F(TokenSamples, NoIdsGiveFieldsWithoutRows) {
  const Batch batch = open(counted(13))->gather_all({});
  EXPECT_EQ(batch.at("tokens").sizes(), (at::IntArrayRef{0, kLength}));
}

// 9 ends a document.
TEST_F(TokenSamples, ThatArePackedTellDocumentsApart) {
  const auto data = open({1, 9, 2, 3, 4, 9, 9, 5, 9}, {.pack = true, .end_of_text = 9});
  EXPECT_THAT(data->fields(), ElementsAre("tokens", "target", "segments"));
  const Batch batch = data->gather_all(std::vector<int64_t>{0, 1});
  EXPECT_THAT(row(batch.at("segments"), 0), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(row(batch.at("target"), 0), ElementsAre(9, kIgnoredTarget, 3, 4));
  EXPECT_THAT(row(batch.at("segments"), 1), ElementsAre(0, 0, 1, 2));
  EXPECT_THAT(row(batch.at("target"), 1),
              ElementsAre(9, kIgnoredTarget, kIgnoredTarget, 9));
}

TEST_F(TokenSamples, LieWithinOneFileEach) {
  std::vector<TokenStretch> stretches;
  for (int file = 0; file < 3; ++file) {
    stretches.push_back({folder_ / text(file), 0, 5 + 4 * file});
    write_token_file(stretches.back().path, counted(13));
  }
  stretches[2].begin = 2;
  const auto data = make_token_dataset(
      map_passages("test", stretches, {.length = 5, .stride = 4}), {.length = kLength});
  ASSERT_EQ(data->size(), 1 + 2 + 2);
  const Batch batch = data->gather_all(std::vector<int64_t>{0, 2, 3, 4});
  EXPECT_THAT(row(batch.at("tokens"), 0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(row(batch.at("tokens"), 1), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(row(batch.at("tokens"), 2), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(row(batch.at("tokens"), 3), ElementsAre(6, 7, 8, 9));
}

TEST_F(TokenSamples, MadeUpOnesDependOnSeedAndSample) {
  const auto made = [](uint64_t seed) {
    return make_token_dataset(
        synthetic_passages(
            {.passages = 20, .length = 65, .vocabulary = 50, .seed = seed}),
        {.length = 64});
  };
  const Batch batch = made(1)->gather_all(std::vector<int64_t>{3, 7, 3});
  const Tensor& tokens = batch.at("tokens");
  EXPECT_TRUE(tokens[0].equal(tokens[2]));
  EXPECT_FALSE(tokens[0].equal(tokens[1]));
  EXPECT_TRUE((tokens >= 0).logical_and(tokens < 50).all().item<bool>());
  EXPECT_FALSE(
      made(2)->gather_all(std::vector<int64_t>{3}).at("tokens")[0].equal(tokens[0]));
  // So much that there is something to learn.
  const Tensor follows = ((tokens * 5 + 3) % 50).eq(batch.at("target"));
  EXPECT_GT(follows.to(at::kFloat).mean().item<float>(), 0.6f);
}

}  // namespace
}  // namespace cohort
