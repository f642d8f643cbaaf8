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
  const auto together = data->gather(Ids{5, 99, 5, 0});
  EXPECT_EQ(together.input.sizes(), (Ids{4, 3, 32, 32}));
  EXPECT_EQ(together.target.sizes(), (Ids{4}));
  const auto alone = make_synthetic({.size = 1000, .seed = 3})->gather(Ids{99});
  EXPECT_TRUE(at::equal(together.input[1], alone.input[0]));
  EXPECT_TRUE(at::equal(together.target[1], alone.target[0]));
  EXPECT_TRUE(at::equal(together.input[0], together.input[2]));
  EXPECT_FALSE(at::equal(together.input[0], together.input[3]));

  const auto other = make_synthetic({.size = 100, .seed = 4})->gather(Ids{99});
  EXPECT_FALSE(at::equal(other.input[0], alone.input[0]));
}

// What a bench or a smoke test needs: every class comes up, and the nearest class mean
// names it, so that a model has something to learn.
TEST(Synthetic, ClassesCanBeToldApart) {
  const auto data = make_synthetic({.size = 400, .shape = {64}, .classes = 5});
  Ids all(400);
  std::iota(all.begin(), all.end(), 0);
  const auto batch = data->gather(all);
  const auto count = batch.target.bincount();
  ASSERT_EQ(count.size(0), 5);
  EXPECT_GT(count.min().item<int64_t>(), 40);  // expected 80, deviation 8
  auto means = at::zeros({5, 64}).index_add(0, batch.target, batch.input);
  means.div_(count.unsqueeze(1));
  const auto nearest = at::cdist(batch.input, means).argmin(1);
  EXPECT_GT(nearest.eq(batch.target).sum().item<int64_t>(), 390);
  EXPECT_LT(batch.input.mean().abs().item<float>(), 0.1f);
}

TEST(Synthetic, RefusesNonsense) {
  EXPECT_THROW(make_synthetic({.size = 0}), ConfigError);
  EXPECT_THROW(make_synthetic({.shape = {3, 0}}), ConfigError);
  EXPECT_THROW(make_synthetic({.classes = 0}), ConfigError);
  EXPECT_THROW((void)make_synthetic({.size = 2})->gather(Ids{2}), BugError);
}

}  // namespace
}  // namespace cohort
