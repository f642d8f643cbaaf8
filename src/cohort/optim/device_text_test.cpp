// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace cohort {
namespace {

// NVRTC is given a text, and knows no folder in which it could look for another.
TEST(DeviceText, IncludesNothing) {
  const std::filesystem::path source = std::getenv("COHORT_SOURCE");
  for (const char* name : {"sum_arithmetic.h", "update_arithmetic.h"}) {
    std::ifstream file(source / "src/cohort/optim" / name);
    std::ostringstream text;
    text << file.rdbuf();
    EXPECT_THAT(text.str(), testing::HasSubstr("namespace cohort::arithmetic {"));
    EXPECT_THAT(text.str(), testing::Not(testing::ContainsRegex("# *include"))) << name;
  }
}

}  // namespace
}  // namespace cohort
