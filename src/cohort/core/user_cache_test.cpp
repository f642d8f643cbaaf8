// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/user_cache.h"

#include <gtest/gtest.h>

#include "cohort/core/testing_variable.h"

namespace cohort {
namespace {

using test::WithVariable;

TEST(UserCache, TheFirstVariableThatIsSetSaysWhere) {
  const WithVariable home("HOME", "/home/one");
  const WithVariable xdg("XDG_CACHE_HOME", "/caches");
  const WithVariable own("COHORT_CACHE", "/mine");
  EXPECT_EQ(user_cache("text"), "/mine/text");
  const WithVariable no_own("COHORT_CACHE", nullptr);
  EXPECT_EQ(user_cache("text"), "/caches/cohort/text");
  const WithVariable no_xdg("XDG_CACHE_HOME", "");
  EXPECT_EQ(user_cache("text"), "/home/one/.cache/cohort/text");
  const WithVariable no_home("HOME", nullptr);
  EXPECT_EQ(user_cache("text"), "");
}

}  // namespace
}  // namespace cohort
