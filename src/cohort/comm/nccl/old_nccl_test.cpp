// SPDX-License-Identifier: Apache-2.0
// A program of its own: a library that is loaded stays.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "cohort/comm/nccl/nccl_library.h"

namespace cohort::nccl_backend {
namespace {

TEST(OldNccl, IsRefusedWithItsVersionAndTheOldestThatIsLegal) {
  // Where LibTorch has loaded a real one, that counts.
  if (::dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD)) return;
  const char* const path = std::getenv("COHORT_OLD_NCCL");
  ASSERT_NE(path, nullptr) << "run through ctest";
  ASSERT_NE(::dlopen(path, RTLD_NOW | RTLD_LOCAL), nullptr) << ::dlerror();
  EXPECT_EQ(why_no_nccl(), "NCCL 2.10.3 is too old; legal: 2.18.0 or newer");
  EXPECT_EQ(nccl_version(), "");
}

}  // namespace
}  // namespace cohort::nccl_backend
