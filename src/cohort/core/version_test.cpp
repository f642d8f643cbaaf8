// SPDX-License-Identifier: Apache-2.0
#include "cohort/version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(Version, IsARelease) {
  EXPECT_THAT(std::string(version()),
              testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
}

TEST(Version, BuildIdIsHexOrUnknown) {
  EXPECT_THAT(build_id(), testing::MatchesRegex("unknown|[0-9a-f]{16,}"));
  EXPECT_EQ(build_id(), build_id());
}

}  // namespace
}  // namespace cohort
