// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/gpu_peak.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(GpuPeak, IsThatOfTheDataSheet) {
  EXPECT_EQ(peak_flops("NVIDIA H200", at::kBFloat16), 989e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 PCIe", at::kHalf), 756e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 80GB HBM3", at::kHalf), 989e12);
  EXPECT_EQ(peak_flops("NVIDIA A100-SXM4-80GB", at::kFloat), 19.5e12);
}

TEST(GpuPeak, OfAnUnknownOneIsNotGuessed) {
  EXPECT_FALSE(peak_flops("NVIDIA Z9", at::kBFloat16));
  EXPECT_FALSE(peak_flops("", at::kBFloat16));
}

TEST(GpuPeak, AStepUsesAShareOfIt) {
  EXPECT_DOUBLE_EQ(flops_share(5e12, 0.01, 1e15), 0.5);
}

}  // namespace
}  // namespace cohort
