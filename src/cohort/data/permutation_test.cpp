// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/permutation.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "cohort/core/error.h"

namespace cohort {
namespace {

std::vector<int64_t> all_of(const Permutation& permutation) {
  std::vector<int64_t> places;
  for (int64_t k = 0; k < permutation.size(); ++k) places.push_back(permutation(k));
  return places;
}

void expect_bijection(int64_t size) {
  std::vector<bool> seen(size, false);
  for (const int64_t id : all_of(Permutation(7, 3, size))) {
    ASSERT_TRUE(id >= 0 && id < size) << id << " of " << size;
    ASSERT_FALSE(seen[id]) << id << " of " << size;
    seen[id] = true;
  }
}

TEST(Permutation, IsABijection) {
  for (int64_t size = 1; size <= 1000; ++size) expect_bijection(size);
  expect_bijection(60'000);
  expect_bijection(65'536);
  expect_bijection(65'537);
}

// Frozen: checkpoints hold positions in these orders. Never change the values.
TEST(Permutation, KnownAnswers) {
  EXPECT_EQ(all_of(Permutation(0, 0, 10)),
            (std::vector<int64_t>{8, 6, 9, 1, 7, 3, 2, 0, 4, 5}));
  EXPECT_EQ(all_of(Permutation(1, 2, 10)),
            (std::vector<int64_t>{7, 3, 0, 2, 9, 5, 6, 8, 1, 4}));
  const Permutation train(42, 1, 60'000);
  EXPECT_EQ(train(0), 5309);
  EXPECT_EQ(train(1), 31'397);
  EXPECT_EQ(train(59'999), 27'775);
  const Permutation huge(~uint64_t{0}, 1'000'000, int64_t{1} << 40);
  EXPECT_EQ(huge(0), 196'204'321'145);
  EXPECT_EQ(huge((int64_t{1} << 40) - 1), 278'359'682'580);
}

TEST(Permutation, DiffersByEpochAndSeed) {
  const auto base = all_of(Permutation(5, 5, 1000));
  for (const auto& other :
       {Permutation(5, 6, 1000), Permutation(6, 5, 1000), Permutation(4, 6, 1000)}) {
    int fixed = 0;
    for (int64_t k = 0; k < 1000; ++k) fixed += other(k) == base[k];
    EXPECT_LT(fixed, 12);  // expected 1; chance of 12 or more is below 1e-8
  }
}

// Chi-square of where place k of a set of 50 goes, over 5,000 epochs. 49 degrees of
// freedom: mean 49, standard deviation 9.9; all inputs are fixed, so is the outcome.
TEST(Permutation, EveryPlaceIsEquallyLikely) {
  constexpr int kSize = 50, kEpochs = 5000;
  for (const int64_t place : {0, 1, 24, 49}) {
    std::vector<int> count(kSize, 0);
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      ++count[Permutation(11, epoch, kSize)(place)];
    }
    double chi = 0;
    const double expected = static_cast<double>(kEpochs) / kSize;
    for (const int c : count) chi += (c - expected) * (c - expected) / expected;
    EXPECT_LT(chi, 49 + 4 * 9.9) << "place " << place;
    EXPECT_GT(chi, 49 - 4 * 9.9) << "place " << place;
  }
}

// Neighbours must not stay together: the gap from pi(k) to pi(k + 1) is as good as
// uniform (16 equal bins over 60,000 gaps, 15 degrees of freedom).
TEST(Permutation, NeighboursAreScattered) {
  constexpr int64_t kSize = 60'000;
  const auto order = all_of(Permutation(3, 0, kSize));
  std::vector<int> count(16, 0);
  for (int64_t k = 0; k < kSize; ++k) {
    const int64_t gap = (order[(k + 1) % kSize] - order[k] + kSize) % kSize;
    ++count[gap * 16 / kSize];
  }
  double chi = 0;
  for (const int c : count) chi += (c - 3750.0) * (c - 3750.0) / 3750.0;
  EXPECT_LT(chi, 15 + 4 * 5.5);
}

TEST(Permutation, SmallSetsSeeEveryOrder) {
  std::map<std::vector<int64_t>, int> count;
  for (int epoch = 0; epoch < 2400; ++epoch) ++count[all_of(Permutation(1, epoch, 4))];
  ASSERT_EQ(count.size(), 24u);
  double chi = 0;
  for (const auto& [order, c] : count) chi += (c - 100.0) * (c - 100.0) / 100.0;
  EXPECT_LT(chi, 23 + 4 * 6.8);
}

TEST(Permutation, RefusesAPlaceOutside) {
  const Permutation permutation(0, 0, 3);
  EXPECT_THROW(permutation(-1), BugError);
  EXPECT_THROW(permutation(3), BugError);
  EXPECT_THROW(Permutation(0, 0, 0)(0), BugError);
}

}  // namespace
}  // namespace cohort
