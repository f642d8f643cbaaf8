// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"

namespace cohort {
namespace {

using testing::HasSubstr;

std::string error_of(std::string_view keys, int world) {
  return test::message_of<ConfigError>([&] { parse_layout(keys, world); });
}

TEST(Layout, MissingDpIsInferred) {
  EXPECT_EQ(parse_layout("", 3).dp, 3);
  EXPECT_EQ(parse_layout("tp=2", 6).dp, 3);
  EXPECT_EQ(parse_layout("shard=2", 4).shard, 2);
}

TEST(Layout, PartsOfSequencesAndExpertsAreAxes) {
  const Layout layout = parse_layout("cp=2,ep=4", 8);
  EXPECT_EQ(layout.dp, 4);
  EXPECT_EQ(layout.text(), "dp=4,tp=1,pp=1,shard=0,replicate=1,cp=2,ep=4");
  EXPECT_THAT(error_of("cp=3", 8), HasSubstr("is for 6 ranks; the world has 8"));
  EXPECT_THAT(error_of("cq=3", 8), HasSubstr("nearest: cp"));
}

TEST(Layout, ProductThatIsNotTheWorldIsRefusedWithBothNumbers) {
  EXPECT_THAT(error_of("dp=3", 2), HasSubstr("is for 3 ranks; the world has 2"));
  EXPECT_THAT(
      error_of("tp=4", 6),
      HasSubstr("the world has 6; legal: dp x cp x tp x pp = 6, or a multiple of "
                "4 ranks"));
  EXPECT_THAT(error_of("dp=2,tp=2", 6),
              HasSubstr("legal: dp x cp x tp x pp = 6, here dp=3"));
  EXPECT_THAT(error_of("tp=65536,pp=65536", 6), HasSubstr("more than 1048576 ranks"));
  EXPECT_THAT(error_of("dp=65536,tp=65536", 6), HasSubstr("4294967296 ranks"));
}

TEST(Layout, UnknownKeyGetsTheNearest) {
  EXPECT_THAT(error_of("dq=2", 2), HasSubstr("nearest: dp"));
  EXPECT_THAT(error_of("shards=2", 2), HasSubstr("nearest: shard"));
}

TEST(Layout, BadValueSaysWhatIsLegal) {
  EXPECT_THAT(error_of("shard=4", 2), HasSubstr("from 0 to 3"));
  EXPECT_THAT(error_of("dp=two", 2), HasSubstr("'two'"));
  EXPECT_THAT(error_of("dp=0", 2), HasSubstr("legal"));
  EXPECT_THAT(error_of("dp", 2), HasSubstr("key=value"));
  EXPECT_THAT(error_of("dp=2,dp=2", 2), HasSubstr("dp twice"));
}

}  // namespace
}  // namespace cohort
