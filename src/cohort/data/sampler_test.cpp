// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/data/permutation.h"

namespace cohort {
namespace {

using Ids = std::vector<int64_t>;

// The samples of a batch, rank after rank.
Ids batch_over_ranks(const Sampler& sampler, Position position, int ranks) {
  Ids ids;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto mine = slices_of(rank, ranks, sampler.options().slices);
    for (int s = mine.begin; s < mine.end; ++s) {
      const auto slice = sampler.slice(position, s);
      ids.insert(ids.end(), slice.begin(), slice.end());
    }
  }
  return ids;
}

class SamplerWorld : public testing::TestWithParam<int> {};

TEST_P(SamplerWorld, EverySampleOnceAnEpoch) {
  const Sampler sampler({.size = 1003, .batch = 64, .slices = 8, .seed = 9});
  ASSERT_EQ(sampler.steps_per_epoch(), 16);
  for (const int64_t epoch : {0, 1}) {
    Ids seen;
    for (int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
      const auto ids = batch_over_ranks(sampler, {epoch, step}, GetParam());
      EXPECT_EQ(static_cast<int64_t>(ids.size()), sampler.batch_size({epoch, step}));
      seen.insert(seen.end(), ids.begin(), ids.end());
    }
    std::sort(seen.begin(), seen.end());
    Ids all(1003);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(seen, all);
  }
}

TEST_P(SamplerWorld, ABatchDoesNotDependOnTheRanks) {
  const Sampler sampler({.size = 1003, .batch = 37, .slices = 11, .seed = 2});
  for (int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
    EXPECT_EQ(batch_over_ranks(sampler, {4, step}, GetParam()),
              batch_over_ranks(sampler, {4, step}, 1));
  }
}

TEST_P(SamplerWorld, RanksShareTheSlicesEvenly) {
  const Sampler sampler({.size = 100, .batch = 10, .slices = 8});
  int next = 0;
  for (int rank = 0; rank < GetParam(); ++rank) {
    const auto mine = slices_of(rank, GetParam(), sampler.options().slices);
    EXPECT_EQ(mine.begin, next);
    EXPECT_GE(mine.end - mine.begin, 8 / GetParam());
    EXPECT_LE(mine.end - mine.begin, (8 - 1) / GetParam() + 1);
    next = mine.end;
  }
  EXPECT_EQ(next, 8);
}

INSTANTIATE_TEST_SUITE_P(Ranks, SamplerWorld, testing::Values(1, 2, 3, 5, 8));

TEST(Sampler, FollowsThePermutation) {
  const Sampler sampler({.size = 10, .batch = 4, .slices = 3, .seed = 6});
  const Permutation order(6, 2, 10);
  EXPECT_EQ(sampler.slice({2, 0}, 0), (Ids{order(0), order(1)}));
  EXPECT_EQ(sampler.slice({2, 0}, 1), (Ids{order(2)}));
  EXPECT_EQ(sampler.slice({2, 0}, 2), (Ids{order(3)}));
  // The last batch has two samples for three slices.
  EXPECT_EQ(sampler.slice({2, 2}, 0), (Ids{order(8)}));
  EXPECT_EQ(sampler.slice({2, 2}, 1), (Ids{order(9)}));
  EXPECT_EQ(sampler.slice({2, 2}, 2), Ids{});
}

TEST(Sampler, PositionsCountThroughEpochs) {
  const Sampler sampler({.size = 10, .batch = 4, .slices = 1});
  EXPECT_EQ(sampler.position(0), (Position{0, 0}));
  EXPECT_EQ(sampler.position(7), (Position{2, 1}));
  EXPECT_EQ(sampler.step({2, 1}), 7);
  EXPECT_EQ(sampler.batch_size({0, 2}), 2);
}

TEST(Sampler, ABatchLargerThanTheDataIsTheData) {
  const Sampler sampler({.size = 3, .batch = 100, .slices = 2});
  EXPECT_EQ(sampler.steps_per_epoch(), 1);
  EXPECT_THAT(batch_over_ranks(sampler, {0, 0}, 2),
              testing::UnorderedElementsAre(0, 1, 2));
}

TEST(Sampler, RefusesMoreRanksThanSlices) {
  const Sampler sampler({.size = 100, .batch = 10, .slices = 4});
  EXPECT_THAT(test::message_of<ConfigError>(
                  [&] { (void)slices_of(0, 5, sampler.options().slices); }),
              testing::HasSubstr("5 data-parallel ranks for 4 slices"));
}

TEST(Sampler, RefusesNonsense) {
  EXPECT_THROW(Sampler({.size = 0}), ConfigError);
  EXPECT_THROW(Sampler({.size = 1, .batch = 0}), ConfigError);
  EXPECT_THROW(Sampler({.size = 1, .batch = 1, .slices = 0}), ConfigError);
}

}  // namespace
}  // namespace cohort
