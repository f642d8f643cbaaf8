// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/stretch_seal.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "cohort/engine/sum.h"
#include "support/ranks.h"

namespace cohort {
namespace {

constexpr int64_t kShard = kStretch + 10, kShards = 3;

struct Sealed {
  explicit Sealed(at::ScalarType dtype)
      : buffer(at::zeros({kShards * kShard}, dtype)),
        seal(buffer, at::zeros({StretchSeal::table_size(kShard, kShards)}, at::kLong)) {
    seal.close_all(kShard, kShards);
  }
  Tensor buffer;
  StretchSeal seal;
};

// In a child: tensors this large start LibTorch's threads, and no process that has any
// can be forked for the ranks of other tests.
TEST(StretchSeal, NoticesAChangeInTheStretchThatHasIt) {
  test::run_in_child([] {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      Sealed it(dtype);
      EXPECT_TRUE(it.seal.all_hold(kShard, kShards));
      it.buffer[kShard + kStretch + 9] = 1;  // the last of shard 1
      EXPECT_FALSE(it.seal.all_hold(kShard, kShards));
      EXPECT_TRUE(it.seal.all_hold(kShard, 1));
      EXPECT_TRUE(it.seal.holds(kShard, kShard, kStretch));
      EXPECT_FALSE(it.seal.holds(kShard, kShard + kStretch, 10));
      EXPECT_TRUE(it.seal.holds(kShard, 2 * kShard, kStretch));
      it.seal.close(kShard, kShard + kStretch, 10);
      EXPECT_TRUE(it.seal.all_hold(kShard, kShards));
    }
  });
}

TEST(StretchSeal, TakesTheHashOfWhoeverWrote) {
  test::run_in_child([] {
    Sealed it(at::kFloat);
    const std::vector<float> sum(10, 2.5f);
    it.seal.close_as(kShard, kStretch, StretchSeal::hash_of(sum.data(), 40));
    EXPECT_FALSE(it.seal.holds(kShard, kStretch, 10));
    std::copy(sum.begin(), sum.end(), it.buffer.data_ptr<float>() + kStretch);
    EXPECT_TRUE(it.seal.all_hold(kShard, kShards));
  });
}

TEST(StretchSeal, OfNothingAlwaysHolds) {
  StretchSeal none;
  none.close_all(kShard, kShards);
  none.close_as(kShard, 0, 1);
  EXPECT_TRUE(none.all_hold(kShard, kShards));
}

}  // namespace
}  // namespace cohort
