// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/loaded_libtorch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/headeronly/version.h>

namespace cohort {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(LoadedLibtorch, IsTheOneThatTheTestsWereBuiltWith) {
  EXPECT_NO_THROW(require_built_libtorch());
  EXPECT_EQ(libtorch_refusal(TORCH_ABI_VERSION, "there"), "");
}

TEST(LoadedLibtorch, AnotherReleaseIsRefusedByNumberAndFile) {
  constexpr uint64_t kMinor = 1ULL << 48, kPatch = 1ULL << 40;
  for (const uint64_t other : {TORCH_ABI_VERSION - kMinor, TORCH_ABI_VERSION + kPatch})
    EXPECT_THAT(libtorch_refusal(other, "/opt/libtorch_cpu.so"),
                AllOf(HasSubstr("/opt/libtorch_cpu.so is LibTorch "),
                      HasSubstr("; legal: " TORCH_VERSION)));
  EXPECT_THAT(libtorch_refusal(2ULL << 56 | 9ULL << 48 | 1ULL << 40, ""),
              HasSubstr("LibTorch 2.9.1; legal"));
}

TEST(LoadedLibtorch, OneWithoutANumberIsOlder) {
  EXPECT_THAT(libtorch_refusal(0, ""), HasSubstr("is an older LibTorch"));
}

}  // namespace
}  // namespace cohort
