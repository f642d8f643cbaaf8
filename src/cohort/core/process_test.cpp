// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/process.h"

#include <gtest/gtest.h>
#include <sys/utsname.h>

namespace cohort {
namespace {

TEST(HostName, IsThatOfTheKernel) {
  utsname system{};
  ASSERT_EQ(::uname(&system), 0);
  EXPECT_EQ(host_name(), system.nodename);
}

}  // namespace
}  // namespace cohort
