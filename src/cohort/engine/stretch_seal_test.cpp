// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/stretch_seal.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "cohort/engine/sum.h"
#include "support/ranks.h"

namespace cohort {
namespace {

constexpr int64_t kShare = kStretch + 10, kShares = 3;

struct Sealed {
  explicit Sealed(at::ScalarType dtype)
      : buffer(at::zeros({kShares * kShare}, dtype)),
        seal(buffer, at::zeros({StretchSeal::table_size(kShare, kShares)}, at::kLong)) {
    seal.close_all(kShare, kShares);
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
      EXPECT_TRUE(it.seal.all_hold(kShare, kShares));
      it.buffer[kShare + kStretch + 9] = 1;  // the last of share 1
      EXPECT_FALSE(it.seal.all_hold(kShare, kShares));
      EXPECT_TRUE(it.seal.all_hold(kShare, 1));
      EXPECT_TRUE(it.seal.holds(kShare, kShare, kStretch));
      EXPECT_FALSE(it.seal.holds(kShare, kShare + kStretch, 10));
      EXPECT_TRUE(it.seal.holds(kShare, 2 * kShare, kStretch));
      it.seal.close(kShare, kShare + kStretch, 10);
      EXPECT_TRUE(it.seal.all_hold(kShare, kShares));
    }
  });
}

TEST(StretchSeal, TakesTheHashOfWhoeverWrote) {
  test::run_in_child([] {
    Sealed it(at::kFloat);
    const std::vector<float> sum(10, 2.5f);
    it.seal.close_as(kShare, kStretch, StretchSeal::hash_of(sum.data(), 40));
    EXPECT_FALSE(it.seal.holds(kShare, kStretch, 10));
    std::copy(sum.begin(), sum.end(), it.buffer.data_ptr<float>() + kStretch);
    EXPECT_TRUE(it.seal.all_hold(kShare, kShares));
  });
}

TEST(StretchSeal, OfNothingAlwaysHolds) {
  StretchSeal none;
  none.close_all(kShare, kShares);
  none.close_as(kShare, 0, 1);
  EXPECT_TRUE(none.all_hold(kShare, kShares));
}

}  // namespace
}  // namespace cohort
