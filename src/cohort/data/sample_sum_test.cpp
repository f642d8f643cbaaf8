// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/sample_sum.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "cohort/data/sampler.h"

namespace cohort {
namespace {

using SampleIds = std::vector<int64_t>;

// By docs/formats/sample_order.md, in Python: tests/integration/history_reader.py.
TEST(SampleSum, KnownAnswers) {
  EXPECT_EQ(sample_key(0, 0), 0x48218226ff3cd4bfu);
  EXPECT_EQ(sample_key(7, 3), 0x27fc3d62819d71a4u);
  EXPECT_EQ(sum_samples(sample_key(7, 3), SampleIds{0, 1, 59999}),
            (SampleSum{.sum = 0xc452799ae30d4629u, .count = 3}));
}

TEST(SampleSum, OrderAndCutsDoNotMatter) {
  const uint64_t key = sample_key(1, 2);
  SampleSum parts = sum_samples(key, SampleIds{9, 4});
  parts += sum_samples(key, SampleIds{});
  parts += sum_samples(key, SampleIds{5});
  EXPECT_EQ(parts, sum_samples(key, SampleIds{4, 5, 9}));
}

TEST(SampleSum, AMissingADoubledAndAnotherSampleAreSeen) {
  const uint64_t key = sample_key(1, 0);
  const SampleSum right = sum_samples(key, SampleIds{3, 4, 5, 6});
  EXPECT_NE(right, sum_samples(key, SampleIds{3, 4, 5}));
  EXPECT_NE(right, sum_samples(key, SampleIds{3, 4, 5, 5}));
  EXPECT_NE(right, sum_samples(key, SampleIds{3, 4, 5, 7}));
  EXPECT_NE(right.sum,
            sum_samples(key, SampleIds{2, 4, 5, 7}).sum);  // as plain sums: equal
  EXPECT_NE(right, sum_samples(sample_key(1, 1), SampleIds{3, 4, 5, 6}));
  EXPECT_NE(right, sum_samples(sample_key(2, 0), SampleIds{3, 4, 5, 6}));
}

TEST(SampleSum, ABatchHasTheSumOfItsSlicesAndAnEpochThatOfAllSamples) {
  for (const int slices : {1, 3}) {
    const Sampler sampler({.size = 50, .batch = 8, .slices = slices, .seed = 3});
    const uint64_t key = sample_key(3, 4);
    SampleSum epoch;
    for (int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
      SampleSum batch;
      for (int slice = 0; slice < slices; ++slice)
        batch += sum_samples(key, sampler.slice({4, step}, slice));
      EXPECT_EQ(sampler.batch_sum({4, step}), batch) << step;
      epoch += batch;
    }
    SampleIds all(50);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(epoch, sum_samples(key, all));
  }
}

}  // namespace
}  // namespace cohort
