// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/masked_tokens.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "cohort/data/token_dataset.h"

namespace cohort {
namespace {

constexpr int64_t kMaskedLength = 50, kWords = 1000;
constexpr int64_t kToFillIn = 8;  // round(0.15 * 50), halves away from zero

std::unique_ptr<Dataset> text_of_tokens() {
  return make_token_dataset(
      synthetic_passages(
          {.passages = 400, .length = kMaskedLength, .vocabulary = kWords}),
      {.length = kMaskedLength, .next = false});
}

MaskOptions mask_options(uint64_t seed = 0) {
  return {.vocabulary = {.size = kWords, .end = kWords, .mask = kWords}, .seed = seed};
}

std::vector<int64_t> all_ids() {
  std::vector<int64_t> ids(400);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  return ids;
}

Batch masked(std::span<const int64_t> ids, int64_t epoch, uint64_t seed = 0) {
  Batch batch = text_of_tokens()->gather_all(ids);
  mask_tokens(mask_options(seed))(batch, epoch);
  return batch;
}

TEST(MaskedTokens, EverySampleHasEquallyManyToFillIn) {
  const Batch text = text_of_tokens()->gather_all(all_ids());
  const Batch batch = masked(all_ids(), 3);
  const Tensor asked = batch.at("target").ne(kIgnoredTarget);
  EXPECT_TRUE(asked.sum(1).eq(kToFillIn).all().item<bool>());
  // What is asked for is the text; what is not asked for stays.
  EXPECT_TRUE(
      batch.at("target").where(asked, text.at("target")).equal(text.at("target")));
  EXPECT_TRUE(
      text.at("tokens").where(asked, batch.at("tokens")).equal(text.at("tokens")));
}

TEST(MaskedTokens, EightOfTenAreMaskedOneIsAnotherOneStays) {
  const Batch text = text_of_tokens()->gather_all(all_ids());
  const Batch batch = masked(all_ids(), 3);
  const Tensor asked = batch.at("target").ne(kIgnoredTarget);
  const Tensor shown = batch.at("tokens").masked_select(asked);
  const auto share = [&](const Tensor& which) {
    return which.to(at::kDouble).mean().item<double>();
  };
  const Tensor same = shown.eq(text.at("tokens").masked_select(asked));
  EXPECT_NEAR(share(shown.eq(kWords)), 0.8, 0.03);
  EXPECT_NEAR(share(same), 0.1, 0.03);
  EXPECT_LT(shown.max().item<int64_t>(), kWords + 1);
}

TEST(MaskedTokens, DependOnSeedEpochAndSampleAlone) {
  const std::vector<int64_t> some = {7, 3}, one = {3};
  const Batch batch = masked(some, 1);
  for (const char* field : {"tokens", "target"}) {
    EXPECT_TRUE(batch.at(field)[1].equal(masked(one, 1).at(field)[0]));
    EXPECT_FALSE(batch.at(field)[1].equal(masked(one, 2).at(field)[0]));
    EXPECT_FALSE(batch.at(field)[1].equal(masked(one, 1, /*seed=*/5).at(field)[0]));
  }
}

// A stage of a pipeline has one field of the two.
TEST(MaskedTokens, FitWhenAFieldIsAlone) {
  const std::vector<int64_t> ids = {7, 3};
  const std::vector<std::string> target = {"target"};
  Batch alone = text_of_tokens()->gather(ids, target);
  mask_tokens(mask_options())(alone, 1);
  EXPECT_TRUE(alone.at("target").equal(masked(ids, 1).at("target")));
}

TEST(MaskedTokens, AreTheSameInEveryValidation) {
  const std::vector<int64_t> ids = {7, 3};
  const auto data = make_masked_dataset(text_of_tokens(), mask_options());
  EXPECT_EQ(data->size(), 400);
  const Batch batch = data->gather_all(ids);
  EXPECT_TRUE(batch.at("tokens").equal(masked(ids, 0).at("tokens")));
  EXPECT_TRUE(batch.at("target").equal(masked(ids, 0).at("target")));
}

}  // namespace
}  // namespace cohort
