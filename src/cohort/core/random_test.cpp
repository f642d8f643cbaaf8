// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/random.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <set>

#include "cohort/core/error.h"

namespace cohort {
namespace {

// Known answers of Random123 (kat_vectors, "philox4x32 10").
TEST(Random, PhiloxGivesThePublishedAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                       {0xffffffff, 0xffffffff}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                       {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, EveryPartOfAKeyMatters) {
  std::set<uint64_t> streams;
  for (int64_t step : {0, 1}) {
    for (int64_t sample : {0, 1}) {
      for (const char* op : {"dropout", "crop"}) {
        streams.insert(RandomKey::of_sample(7, step, sample, op).stream);
      }
    }
  }
  EXPECT_EQ(streams.size(), 8u);
  EXPECT_NE(RandomKey::of_path(7, "fc.weight"), RandomKey::of_path(7, "fc.bias"));
  EXPECT_NE(RandomKey::of_path(7, "fc.weight", 0),
            RandomKey::of_path(7, "fc.weight", 1));
  const auto key = RandomKey::of_path(7, "a"), other = RandomKey::of_path(8, "a");
  EXPECT_NE(random_bits64(key, 0), random_bits64(other, 0));
}

TEST(Random, UniformStaysInItsRange) {
  const auto key = RandomKey::of_path(1, "u");
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const float f = uniform_float(key, i);
    const double d = uniform_double(key, i);
    ASSERT_TRUE(f >= 0 && f < 1 && d >= 0 && d < 1);
    sum += d;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.015);  // five standard errors
}

TEST(Random, BelowReachesEveryValueAndNoOther) {
  const auto key = RandomKey::of_path(1, "b");
  std::set<uint64_t> seen;
  for (int i = 0; i < 500; ++i) seen.insert(random_below(key, i, 7));
  EXPECT_EQ(seen.size(), 7u);
  EXPECT_EQ(*seen.rbegin(), 6u);
  EXPECT_THROW(random_below(key, 0, 0), BugError);
}

TEST(Random, NormalHasMeanZeroAndDeviationOne) {
  auto x = at::empty({20000}, at::kDouble);
  fill_normal(x, RandomKey::of_path(3, "n"), 0, 1);
  EXPECT_NEAR(x.mean().item<double>(), 0, 0.036);
  EXPECT_NEAR(x.std().item<double>(), 1, 0.025);
  EXPECT_NEAR(x.pow(3).mean().item<double>(), 0, 0.14);
  EXPECT_NEAR(x.pow(4).mean().item<double>(), 3, 0.35);
}

// The C library's functions are near, but not the same to the last bit everywhere.
TEST(Random, NormalNumbersAreThoseOfBoxAndMuller) {
  const auto key = RandomKey::of_path(3, "n");
  for (uint64_t b = 0; b < 5000; ++b) {
    const double u = 1 - uniform_double(key, 2 * b);
    const double angle = 2 * std::numbers::pi * uniform_double(key, 2 * b + 1);
    const double radius = std::sqrt(-2 * std::log(u));
    ASSERT_NEAR(normal(key, 2 * b), radius * std::cos(angle), 1e-14);
    ASSERT_NEAR(normal(key, 2 * b + 1), radius * std::sin(angle), 1e-14);
  }
}

using Fill = void (*)(Tensor&, const RandomKey&, double, double, int64_t);

class RandomFill : public testing::TestWithParam<Fill> {};

TEST_P(RandomFill, DoesNotDependOnTheCut) {
  const auto key = RandomKey::of_path(5, "w");
  for (auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    auto whole = at::empty({101}, dtype);
    GetParam()(whole, key, -1, 2, 0);
    for (int64_t cut : {1, 2, 3, 5, 50, 100}) {
      auto left = at::empty({cut}, dtype), right = at::empty({101 - cut}, dtype);
      GetParam()(left, key, -1, 2, 0);
      GetParam()(right, key, -1, 2, cut);
      EXPECT_TRUE(at::equal(whole, at::cat({left, right}))) << dtype << " at " << cut;
    }
  }
}

TEST_P(RandomFill, FollowsRowMajorOrderWhateverTheStrides) {
  const auto key = RandomKey::of_path(5, "w");
  auto plain = at::empty({3, 5});
  auto turned = at::empty({5, 3}).t();
  GetParam()(plain, key, -1, 2, 0);
  GetParam()(turned, key, -1, 2, 0);
  EXPECT_TRUE(at::equal(plain, turned));
}

TEST_P(RandomFill, LeavesAutogradAlone) {
  auto parameter = at::empty({4}).requires_grad_();
  GetParam()(parameter, {}, -1, 2, 0);
  EXPECT_TRUE(parameter.is_leaf());
}

TEST_P(RandomFill, RefusesWholeNumbers) {
  auto wrong = at::empty({4}, at::kLong);
  EXPECT_THROW(GetParam()(wrong, {}, -1, 2, 0), BugError);
}

INSTANTIATE_TEST_SUITE_P(Every, RandomFill,
                         testing::Values(&fill_uniform, &fill_normal));

TEST(Random, FillAgreesWithElementAccess) {
  const auto key = RandomKey::of_path(5, "w");
  auto u = at::empty({9}), n = at::empty({9}, at::kDouble);
  fill_uniform(u, key, 0, 1);
  fill_normal(n, key, 0, 1);
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(u[i].item<float>(), uniform_float(key, i));
    EXPECT_EQ(n[i].item<double>(), normal(key, i));
  }
}

// In float32 most of [1, 1 + 1e-8) rounds to 1; the upper border stays out.
TEST(Random, UniformNeverRoundsUpToTheBorder) {
  auto x = at::empty({4096});
  fill_uniform(x, {}, -1.0, std::nextafter(-1.0, 0.0));
  EXPECT_TRUE((x < -1.0f).all().item<bool>());
  fill_uniform(x, {}, 0, 3);
  EXPECT_TRUE(((x >= 0) & (x < 3)).all().item<bool>());
}

TEST(Random, ManyBitsAreThoseOneAtATime) {
  const RandomKey key = RandomKey::of_sample(7, 3, 123'456'789, "dropout");
  for (const uint64_t first : {0u, 1u, 4u, 31u})
    for (const size_t count : {0u, 1u, 5u, 32u, 67u, 200u}) {
      std::vector<uint32_t> many(count);
      random_bits(key, first, many);
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(many[i], random_bits(key, first + i)) << first << " + " << i;
    }
  // Across the border of the counter's words.
  std::vector<uint32_t> many(64);
  const uint64_t first = (uint64_t{1} << 34) - 16;
  random_bits(key, first, many);
  for (size_t i = 0; i < many.size(); ++i)
    ASSERT_EQ(many[i], random_bits(key, first + i)) << i;
  const Tensor streams = at::tensor({static_cast<int64_t>(key.stream)}, at::kLong);
  const Tensor row =
      random_bits(streams, key.seed, static_cast<int64_t>(first + 1), 40);
  for (int64_t i = 0; i < 40; ++i)
    ASSERT_EQ(static_cast<uint32_t>(row[0][i].item<int64_t>()), many[i + 1]) << i;
}

}  // namespace
}  // namespace cohort
