// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/synthetic.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

#include "cohort/core/error.h"

namespace cohort {
namespace {

using Ids = std::vector<int64_t>;

TEST(Synthetic, ASampleDependsOnSeedAndIdAlone) {
  const auto data = make_synthetic({.size = 100, .seed = 3});
  const auto together = data->gather_all(Ids{5, 99, 5, 0});
  EXPECT_EQ(together.at("input").sizes(), (Ids{4, 3, 32, 32}));
  EXPECT_EQ(together.at("target").sizes(), (Ids{4}));
  const auto alone = make_synthetic({.size = 1000, .seed = 3})->gather_all(Ids{99});
  EXPECT_TRUE(at::equal(together.at("input")[1], alone.at("input")[0]));
  EXPECT_TRUE(at::equal(together.at("target")[1], alone.at("target")[0]));
  EXPECT_TRUE(at::equal(together.at("input")[0], together.at("input")[2]));
  EXPECT_FALSE(at::equal(together.at("input")[0], together.at("input")[3]));

  const auto other = make_synthetic({.size = 100, .seed = 4})->gather_all(Ids{99});
  EXPECT_FALSE(at::equal(other.at("input")[0], alone.at("input")[0]));
}

// What a bench or a smoke test needs: every class comes up, and the nearest class mean
// names it, so that a model has something to learn.
TEST(Synthetic, ClassesCanBeToldApart) {
  const auto data = make_synthetic({.size = 400, .shape = {64}, .classes = 5});
  Ids all(400);
  std::iota(all.begin(), all.end(), 0);
  const auto batch = data->gather_all(all);
  const auto count = batch.at("target").bincount();
  ASSERT_EQ(count.size(0), 5);
  EXPECT_GT(count.min().item<int64_t>(), 40);  // expected 80, deviation 8
  auto means = at::zeros({5, 64}).index_add(0, batch.at("target"), batch.at("input"));
  means.div_(count.unsqueeze(1));
  const auto nearest = at::cdist(batch.at("input"), means).argmin(1);
  EXPECT_GT(nearest.eq(batch.at("target")).sum().item<int64_t>(), 390);
  EXPECT_LT(batch.at("input").mean().abs().item<float>(), 0.1f);
}

TEST(Synthetic, RefusesNonsense) {
  EXPECT_THROW(make_synthetic({.size = 0}), ConfigError);
  EXPECT_THROW(make_synthetic({.shape = {3, 0}}), ConfigError);
  EXPECT_THROW(make_synthetic({.classes = 0}), ConfigError);
  EXPECT_THROW((void)make_synthetic({.size = 2})->gather_all(Ids{2}), BugError);
}

}  // namespace
}  // namespace cohort
