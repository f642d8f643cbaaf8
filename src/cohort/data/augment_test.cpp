// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

#include "cohort/data.h"

namespace cohort {
namespace {

constexpr int64_t kSize = 6, kPadding = 2;

// Every pixel of every image is another number, none of them 0.
Batch images(const std::vector<int64_t>& ids) {
  std::vector<Tensor> all;
  for (const int64_t id : ids)
    all.push_back(at::arange(2 * kSize * kSize, at::kFloat)
                      .add(1.0 + 1000.0 * static_cast<double>(id))
                      .reshape({2, kSize, kSize}));
  return Batch::of({{"input", at::stack(all)}, {"target", at::tensor(ids, at::kLong)}},
                   ids);
}

Batch augmented(const std::vector<int64_t>& ids, int64_t epoch, uint64_t seed = 3) {
  Batch batch = images(ids);
  crop_and_flip({.padding = kPadding, .fill = {-1, -2}, .seed = seed})(batch, epoch);
  return batch;
}

// All that may become of an image, made by ATen: padded, cut at (row, column),
// mirrored.
std::vector<Tensor> every_window(const Tensor& image) {
  std::vector<Tensor> planes;
  for (int64_t c = 0; c < 2; ++c)
    planes.push_back(at::constant_pad_nd(
        image[c], {kPadding, kPadding, kPadding, kPadding}, c == 0 ? -1 : -2));
  const Tensor padded = at::stack(planes);
  std::vector<Tensor> windows;
  for (int64_t row = 0; row <= 2 * kPadding; ++row)
    for (int64_t column = 0; column <= 2 * kPadding; ++column) {
      const Tensor window = padded.narrow(1, row, kSize).narrow(2, column, kSize);
      windows.push_back(window);
      windows.push_back(window.flip({2}));
    }
  return windows;
}

TEST(CropAndFlip, CutsEveryWindowAboutEquallyOften) {
  const auto windows = every_window(images({0}).at("input")[0]);
  std::vector<int> seen(windows.size(), 0);
  const int epochs = 40 * static_cast<int>(windows.size());
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    const Tensor got = augmented({0}, epoch).at("input")[0];
    int matches = 0;
    for (size_t w = 0; w < windows.size(); ++w)
      if (got.equal(windows[w])) {
        ++seen[w];
        ++matches;
      }
    ASSERT_EQ(matches, 1) << "epoch " << epoch << "\n" << got;
  }
  for (const int count : seen) {
    EXPECT_GT(count, 15);  // expected: 40; five standard deviations are 31
    EXPECT_LT(count, 75);
  }
}

TEST(CropAndFlip, DependsOnSampleEpochAndSeedAlone) {
  const Batch together = augmented({7, 2, 9, 7}, 5);
  EXPECT_TRUE(together.at("input")[0].equal(together.at("input")[3]));
  EXPECT_TRUE(together.at("input")[1].equal(augmented({2}, 5).at("input")[0]));
  EXPECT_TRUE(together.at("target").equal(at::tensor({7, 2, 9, 7}, at::kLong)));
  int same_epoch = 0, same_seed = 0;
  for (int64_t id = 0; id < 50; ++id) {
    const Tensor here = augmented({id}, 0).at("input");
    same_epoch += here.equal(augmented({id}, 1).at("input"));
    same_seed += here.equal(augmented({id}, 0, 4).at("input"));
  }
  EXPECT_LT(same_epoch, 10);  // one in 50 by chance
  EXPECT_LT(same_seed, 10);
}

TEST(CropAndFlip, LeavesABatchWithoutSamplesAlone) {
  Batch empty = Batch::of({{"input", at::empty({0, 2, kSize, kSize})}});
  crop_and_flip({})(empty, 0);
  EXPECT_EQ(empty.at("input").size(0), 0);
}

TEST(CropAndFlip, PadsWithZerosUnlessToldOtherwise) {
  std::set<float> values;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    Batch batch = Batch::of({{"input", at::ones({1, 2, kSize, kSize})}}, {1});
    crop_and_flip({.padding = kPadding})(batch, epoch);
    const float* pixels = batch.at("input").const_data_ptr<float>();
    values.insert(pixels, pixels + batch.at("input").numel());
  }
  EXPECT_EQ(values, (std::set<float>{0, 1}));
}

}  // namespace
}  // namespace cohort
