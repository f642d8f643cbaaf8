// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/checkpoint/testing_checkpoint.h"
#include "cohort/train/snapshots.h"

namespace cohort {
namespace {

using testing::HasSubstr;

// Two ranks that had some columns each; then one has all of it, and one some rows.
TEST(SnapshotPages, OfBoxesFillAnyOtherCut) {
  const Tensor whole = at::arange(48, at::kFloat).view({8, 6});
  std::vector<std::shared_ptr<SnapshotPages>> parts;
  for (int rank = 0; rank < 2; ++rank) {
    StatePiece piece{whole_tensor("w", whole), {}};
    piece.tensor.spec.box = {{8, 6}, {0, rank * 2}, {8, 2 + rank * 4}};
    piece.tensor.spec.end = piece.tensor.spec.box_numel();
    piece.data = whole.slice(1, rank * 2, 2 + rank * 4).contiguous().view({-1});
    const auto plan = plan_snapshot(std::span(&piece, 1));
    parts.push_back(SnapshotPages::create(plan.total_bytes()));
    ASSERT_TRUE(parts.back()->write({.step = 1, .world = 2, .rank = rank},
                                    test::at_step(1), plan, std::span(&piece, 1)));
  }
  const SnapshotSet kept({parts[0], parts[1]});
  const SnapshotTitle title{.step = 1, .world = 2};
  StatePiece all{whole_tensor("w", whole), at::zeros({48})};
  EXPECT_EQ(kept.fill(title, std::span(&all, 1)), "");
  EXPECT_TRUE(at::equal(all.data, whole.view({-1})));
  StatePiece rows{whole_tensor("w", whole), at::zeros({12})};
  rows.tensor.spec.box = {{4, 12}, {2, 0}, {3, 12}};
  rows.tensor.spec.end = 12;
  EXPECT_EQ(kept.fill(title, std::span(&rows, 1)), "");
  EXPECT_TRUE(at::equal(rows.data, whole.view({4, 12})[2]));
  const SnapshotSet half({parts[0]});
  EXPECT_THAT(half.fill(title, std::span(&all, 1)),
              HasSubstr("step 1 has 16 of 48 elements of w"));
}

}  // namespace
}  // namespace cohort
