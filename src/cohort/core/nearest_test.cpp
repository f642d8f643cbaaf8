// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/nearest.h"

#include <gtest/gtest.h>

#include <vector>

namespace cohort {
namespace {

TEST(Nearest, FindsTheNameWithTheFewestEdits) {
  const std::vector<std::string_view> legal{"auto", "local", "shm", "gloo"};
  EXPECT_EQ(nearest("glo", legal), "gloo");
  EXPECT_EQ(nearest("smh", legal), "shm");
  EXPECT_EQ(nearest("GLOO", legal), "gloo");
  EXPECT_EQ(nearest("locale", legal), "local");
}

TEST(Nearest, CountsASwapOfNeighboursAsOneEdit) {
  const std::vector<std::string> legal{"abxx", "bacd"};
  EXPECT_EQ(nearest("abcd", legal), "bacd");
}

TEST(Nearest, PrefersWhatWasBegun) {
  const std::vector<std::string> legal{"--grace", "--save-initial", "--save-final"};
  EXPECT_EQ(nearest("--save", legal), "--save-final");
  EXPECT_EQ(nearest("--grate", legal), "--grace");
}

TEST(Nearest, GivesTiesToTheFirstAndNothingForNothing) {
  const std::vector<std::string> legal{"ab", "ac"};
  EXPECT_EQ(nearest("ad", legal), "ab");
  EXPECT_EQ(nearest("ad", std::span<const std::string>{}), "");
  EXPECT_EQ(nearest("", legal), "ab");
}

}  // namespace
}  // namespace cohort
