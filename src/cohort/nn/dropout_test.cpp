// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/random.h"
#include "cohort/layers.h"
#include "cohort/step/gradient_target.h"

namespace cohort {
namespace {

using Ids = std::vector<int64_t>;

Context context_of(const Ids& ids, int64_t step = 4, uint64_t seed = 9) {
  return {.step = step, .sample_ids = ids, .seed = seed};
}

Tensor mask(const Dropout& dropout, const Ids& ids, at::IntArrayRef row,
            int64_t step = 4, uint64_t seed = 9) {
  std::vector<int64_t> shape = {static_cast<int64_t>(ids.size())};
  shape.insert(shape.end(), row.begin(), row.end());
  Context context = context_of(ids, step, seed);
  return dropout(at::ones(shape), context);
}

TEST(Dropout, EveryElementFollowsItsKey) {
  const Dropout dropout("0.dropout", 0.3);
  const Ids ids = {70, 3};
  const Tensor y = mask(dropout, ids, {5, 269});
  for (int64_t row = 0; row < 2; ++row) {
    const auto key = RandomKey::of_sample(9, 4, ids[row], "0.dropout");
    const Tensor flat = y[row].flatten();
    for (int64_t j = 0; j < flat.numel(); ++j)
      ASSERT_EQ(flat[j].item<float>(),
                uniform_float(key, j) < 0.3 ? 0.0f : static_cast<float>(1 / 0.7))
          << row << " " << j;
  }
}

TEST(Dropout, MaskDoesNotDependOnTheCut) {
  const Dropout dropout("d", 0.5);
  const Tensor whole = mask(dropout, {5, 1, 9, 7, 2}, {33});
  EXPECT_TRUE(
      at::equal(whole, at::cat({mask(dropout, {5}, {33}), mask(dropout, {1, 9}, {33}),
                                mask(dropout, {7, 2}, {33})})));
  EXPECT_TRUE(at::equal(whole, mask(dropout, {5, 1, 9, 7, 2}, {33})));  // recompute
}

TEST(Dropout, APartOfASampleHasItsPartOfTheMask) {
  const Dropout dropout("d", 0.5);
  const Ids ids = {5, 1};
  Context context = context_of(ids);
  const Tensor whole = mask(dropout, ids, {4, 270});
  const Tensor part = dropout(at::ones({2, 2, 270}), context, /*first=*/270);
  EXPECT_TRUE(at::equal(part, whole.narrow(1, 1, 2)));
}

// The keys of one operation, as a device would hold them.
class Keys final : public DeviceRandom {
 public:
  Keys(const Context& context) : context_(context) {}
  Tensor bits(const std::string& operation, int64_t first, int64_t count) override {
    std::vector<int64_t> all;
    for (const int64_t id : context_.sample_ids)
      all.push_back(static_cast<int64_t>(
          RandomKey::of_sample(context_.seed, context_.step, id, operation).stream));
    return random_bits(at::tensor(all, at::kLong), context_.seed, first, count);
  }

 private:
  const Context& context_;
};

TEST(Dropout, KeysInDeviceMemoryGiveTheSameMask) {
  const Ids ids = {70, 3, 1'000'000'007};
  for (const double p : {0.1, 0.5, 0.93})
    for (const int64_t columns : {1, 4, 270}) {
      const Dropout dropout("0.dropout", p);
      Context context = context_of(ids, 12, 0x9876543210ABCDEF);
      Keys keys(context);
      const Tensor x = at::ones({3, columns}, at::kFloat);
      const Tensor host = dropout(x, context);
      const Tensor later = dropout(x, context, 5);
      context.random = &keys;
      EXPECT_TRUE(at::equal(dropout(x, context), host)) << p << " " << columns;
      EXPECT_TRUE(at::equal(dropout(x, context, 5), later)) << p << " " << columns;
    }
}

TEST(Dropout, SeedStepSampleAndNameEachMatter) {
  const Dropout dropout("d", 0.5);
  const Tensor one = mask(dropout, {5}, {64});
  EXPECT_FALSE(at::equal(one, mask(dropout, {6}, {64})));
  EXPECT_FALSE(at::equal(one, mask(dropout, {5}, {64}, 5)));
  EXPECT_FALSE(at::equal(one, mask(dropout, {5}, {64}, 4, 10)));
  EXPECT_FALSE(at::equal(one, mask(Dropout("e", 0.5), {5}, {64})));
}

TEST(Dropout, KeepsTheMeanAndTheStatedShare) {
  const Tensor y = mask(Dropout("d", 0.2), {1, 2, 3, 4}, {10'000});
  EXPECT_NEAR(y.mean().item<float>(), 1, 0.02);
  EXPECT_NEAR(y.eq(0).to(at::kFloat).mean().item<float>(), 0.2, 0.01);
}

TEST(Dropout, GradientPassesTheSameMask) {
  const Dropout dropout("d", 0.4);
  const Ids ids = {1, 2};
  Context context = context_of(ids);
  const Tensor x = at::arange(2 * 3 * 4 * 4, at::kFloat)
                       .reshape({2, 3, 4, 4})
                       .contiguous(at::MemoryFormat::ChannelsLast)
                       .requires_grad_(true);
  const Tensor y = dropout(x, context);
  const auto grad = torch::autograd::grad({y.sum()}, {x});
  EXPECT_TRUE(at::equal(grad[0], mask(dropout, ids, {3, 4, 4})));
  EXPECT_TRUE(at::equal(y, x * grad[0]));
}

TEST(Dropout, KeepsTheDtype) {
  const Ids ids = {1, 2};
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    Context context = context_of(ids);
    const Tensor y = Dropout("d", 0.5)(at::ones({2, 50}, dtype), context);
    EXPECT_EQ(y.scalar_type(), dtype);
    EXPECT_TRUE(at::equal(y.to(at::kFloat), mask(Dropout("d", 0.5), ids, {50})));
  }
}

TEST(Dropout, DoesNothingInEvaluationAndForZero) {
  const Tensor x = at::ones({3, 3});
  Context evaluate{.phase = Phase::kEvaluate};
  EXPECT_TRUE(Dropout("d", 0.9)(x, evaluate).is_same(x));
  Context train;
  EXPECT_TRUE(Dropout("d", 0)(x, train).is_same(x));
}

TEST(Dropout, RefusesWhatItCannotKey) {
  Context train;
  EXPECT_THROW(Dropout("d", 0.5)(at::ones({3, 3}), train), BugError);
  EXPECT_THROW(Dropout("d", 1), ConfigError);
  EXPECT_THROW(Dropout("d", -0.1), ConfigError);
}

}  // namespace
}  // namespace cohort
