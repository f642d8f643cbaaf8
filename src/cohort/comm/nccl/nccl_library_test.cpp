// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/nccl/nccl_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/core/error.h"

namespace cohort::nccl_backend {
namespace {

TEST(NcclLibrary, SaysInOneLineWhyItIsNotThere) {
  const std::string why = why_no_nccl();
  if (why.empty()) {
    const auto library = load_library();
    EXPECT_GE(library->version, 21800);
    EXPECT_NE(library->AllReduce, nullptr);
    return;
  }
  EXPECT_THAT(why, testing::Not(testing::HasSubstr("\n")));
  EXPECT_THAT(why, testing::HasSubstr("libnccl.so.2"));
  try {
    load_library();
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()), "[comm.nccl] " + why);
  }
}

TEST(NcclLibrary, NamesVersionsAsTheirMakersDo) {
  EXPECT_EQ(version_text(22809), "2.28.9");
  EXPECT_EQ(version_text(21800), "2.18.0");
}

}  // namespace
}  // namespace cohort::nccl_backend
