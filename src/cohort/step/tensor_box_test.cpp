// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/tensor_box.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "cohort/step/piece_overlap.h"

namespace cohort {
namespace {

using testing::HasSubstr;

using Random = std::mt19937_64;

int64_t up_to(Random& random, int64_t most) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(most + 1));
}

// A shape of so many elements, of one to five dimensions.
std::vector<int64_t> some_cut(Random& random, int64_t numel) {
  std::vector<int64_t> cut;
  int64_t left = numel;
  for (int64_t more = up_to(random, 4); more > 0; --more) {
    std::vector<int64_t> divisors;
    for (int64_t n = 1; n <= left; ++n)
      if (left % n == 0) divisors.push_back(n);
    cut.push_back(divisors[up_to(random, std::ssize(divisors) - 1)]);
    left /= cut.back();
  }
  cut.push_back(left);
  std::shuffle(cut.begin(), cut.end(), random);
  return cut;
}

// Any box, also an empty one; every fifth is the whole tensor.
TensorBox some_box(Random& random, int64_t numel) {
  if (up_to(random, 4) == 0) return {};
  TensorBox box{.cut = some_cut(random, numel), .from = {}, .to = {}};
  for (const int64_t n : box.cut) {
    const bool all = up_to(random, 2) == 0;
    const int64_t a = all ? 0 : up_to(random, n), b = all ? n : up_to(random, n);
    box.from.push_back(std::min(a, b));
    box.to.push_back(std::max(a, b));
  }
  return box;
}

// The elements of the whole that a box has, found by cutting them out of all.
std::vector<int64_t> elements_of(const TensorBox& box, int64_t numel) {
  Tensor all = at::arange(numel);
  if (!box.is_whole()) all = all.view(box.cut);
  for (size_t d = 0; d < box.cut.size(); ++d)
    all = all.slice(static_cast<int64_t>(d), box.from[d], box.to[d]);
  const Tensor flat = all.contiguous().view({-1});
  const auto* const data = flat.const_data_ptr<int64_t>();
  return {data, data + flat.numel()};
}

constexpr int64_t kNumels[] = {1, 7, 24, 60, 96, 210};

TEST(TensorBox, EveryElementIsFoundAsByCuttingItOut) {
  Random random(1);
  for (int i = 0; i < 600; ++i) {
    const int64_t numel = kNumels[i % std::size(kNumels)];
    const TensorBox box = some_box(random, numel);
    ASSERT_EQ(box_trouble(box, numel), "");
    const BoxMap map(box, numel);
    const auto elements = elements_of(box, numel);
    ASSERT_EQ(map.numel(), std::ssize(elements));
    for (int64_t at = 0; at < map.numel(); ++at) {
      EXPECT_EQ(map.to_whole(at), elements[at]);
      const int64_t run = map.run_from(at);
      ASSERT_LE(at + run, map.numel());
      for (int64_t k = 0; k < run; ++k) EXPECT_EQ(elements[at + k], elements[at] + k);
    }
    for (int64_t element = 0; element <= numel; ++element)
      EXPECT_EQ(map.before(element),
                std::lower_bound(elements.begin(), elements.end(), element) -
                    elements.begin())
          << box_text(box) << " of " << numel;
  }
}

TEST(TensorBox, TheWholeIsOneRun) {
  EXPECT_EQ(BoxMap({}, 60).run_from(0), 60);
  const TensorBox rows{.cut = {5, 3, 4}, .from = {1, 0, 0}, .to = {4, 3, 4}};
  EXPECT_EQ(BoxMap(rows, 60).run_from(0), 36);
  const TensorBox columns{.cut = {15, 4}, .from = {0, 1}, .to = {15, 3}};
  EXPECT_EQ(BoxMap(columns, 60).run_from(0), 2);
}

TEST(TensorBox, WhatIsNoBoxIsNamed) {
  const auto trouble = [](std::vector<int64_t> cut, std::vector<int64_t> from,
                          std::vector<int64_t> to) {
    return box_trouble({std::move(cut), std::move(from), std::move(to)}, 12);
  };
  EXPECT_EQ(trouble({}, {}, {}), "");
  EXPECT_EQ(trouble({3, 4}, {0, 1}, {3, 4}), "");
  EXPECT_THAT(trouble({3, 5}, {0, 1}, {3, 4}), HasSubstr("3x5; legal: a shape of 12"));
  EXPECT_THAT(trouble({-3, -4}, {0, 0}, {0, 0}), HasSubstr("a shape of 12"));
  EXPECT_THAT(trouble({0, 4}, {0, 0}, {0, 4}), HasSubstr("a shape of 12"));
  EXPECT_THAT(trouble({int64_t{1} << 40, int64_t{1} << 40}, {0, 0}, {1, 1}),
              HasSubstr("a shape of 12"));
  EXPECT_THAT(trouble({3, 4}, {0}, {3, 4}), HasSubstr("each of the 2 dimensions"));
  EXPECT_THAT(trouble({}, {0}, {1}), HasSubstr("each of the 0 dimensions"));
  EXPECT_THAT(trouble({3, 4}, {0, -1}, {3, 4}), HasSubstr("[0:3,-1:4]"));
  EXPECT_THAT(trouble({3, 4}, {2, 0}, {1, 4}), HasSubstr("within 3x4"));
  EXPECT_THAT(trouble({3, 4}, {0, 0}, {3, 5}), HasSubstr("within 3x4"));
  EXPECT_EQ(box_trouble({{0, 4}, {0, 1}, {0, 3}}, 0), "");
}

TensorSpec some_range(Random& random, int64_t numel) {
  TensorSpec spec{.name = "w", .shape = {numel}, .box = some_box(random, numel)};
  const int64_t a = up_to(random, spec.box_numel()),
                b = up_to(random, spec.box_numel());
  spec.begin = std::min(a, b);
  spec.end = std::max(a, b);
  return spec;
}

std::vector<int64_t> elements_of(const TensorSpec& spec) {
  const auto all = elements_of(spec.box, spec.numel());
  return {all.begin() + spec.begin, all.begin() + spec.end};
}

TEST(PieceOverlap, IsWhatBothHaveAndNothingTwice) {
  Random random(2);
  for (int i = 0; i < 3000; ++i) {
    const int64_t numel = kNumels[i % std::size(kNumels)];
    const TensorSpec a = some_range(random, numel), b = some_range(random, numel);
    const auto in_a = elements_of(a), in_b = elements_of(b);
    std::vector<int64_t> shared, found;
    std::ranges::set_intersection(in_a, in_b, std::back_inserter(shared));
    Overlaps overlaps(a, b);
    while (const auto run = overlaps.next())
      for (int64_t k = 0; k < run->count; ++k) {
        found.push_back(in_a.at(run->in_a + k));
        EXPECT_EQ(found.back(), in_b.at(run->in_b + k));
      }
    EXPECT_EQ(found, shared) << box_text(a.box) << " and " << box_text(b.box);
    EXPECT_FALSE(overlaps.next());
    EXPECT_EQ(overlap(a, b), !shared.empty());
  }
}

TEST(PieceOverlap, IsCopiedAsTheOtherDtypeAndNothingBeside) {
  Random random(3);
  for (int i = 0; i < 300; ++i) {
    const int64_t numel = kNumels[i % std::size(kNumels)];
    const auto piece = [&](const TensorSpec& spec, const Tensor& whole) {
      return StatePiece{
          {.spec = spec, .order = {}},
          whole.index_select(0, at::tensor(elements_of(spec), at::kLong))};
    };
    const Tensor whole = at::arange(numel, at::kDouble);
    const auto from = piece(some_range(random, numel), whole);
    const auto to = piece(some_range(random, numel), at::full({numel}, -1, at::kFloat));
    int64_t copied = 0;
    Tensor expected = at::full({numel}, -1, at::kFloat);
    for (const int64_t element : elements_of(from.tensor.spec)) {
      expected[element] = static_cast<float>(element);
      copied += std::ranges::count(elements_of(to.tensor.spec), element);
    }
    EXPECT_EQ(copy_overlap(from, to), copied);
    EXPECT_TRUE(at::equal(to.data, piece(to.tensor.spec, expected).data));
  }
}

// Where nothing is, a product of all other sizes may still be out of range.
TEST(TensorBox, ACutThatNoTensorCanHaveIsNone) {
  const int64_t huge = int64_t{1} << 62;
  EXPECT_NE(box_trouble({{huge, huge, 0}, {0, 0, 0}, {1, 1, 0}}, 0), "");
  EXPECT_NE(box_trouble({{0, huge, huge}, {0, 0, 0}, {0, 1, 1}}, 0), "");
  EXPECT_EQ(box_trouble({{0, 3}, {0, 1}, {0, 2}}, 0), "");
}

}  // namespace
}  // namespace cohort
