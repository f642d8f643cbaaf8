// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/processor.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(Processor, OnlyANeoverseV1IsDescribed) {
  EXPECT_EQ(blas_processor("processor\t: 0\nCPU part\t: 0xd40\nCPU revision\t: 1\n"),
            "1");
  EXPECT_EQ(blas_processor("CPU part\t: 0xd4f\n"), "");  // Neoverse V2
  EXPECT_EQ(blas_processor("model name\t: some x86\n"), "");
}

}  // namespace
}  // namespace cohort
