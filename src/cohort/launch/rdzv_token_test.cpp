// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/rdzv_token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_folder.h"

namespace cohort::process {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kGoodToken = "0123456789abcdef";

class RdzvTokenTest : public testing::Test {
 protected:
  RdzvTokenTest() { ::unsetenv(kRdzvTokenVariable); }
  ~RdzvTokenTest() override { ::unsetenv(kRdzvTokenVariable); }

  std::string file(const std::string& content, mode_t mode) {
    const std::string path = folder_ / "token";
    std::ofstream(path) << content;
    ::chmod(path.c_str(), mode);
    return path;
  }
  static std::string refusal(const std::string& path) {
    return test::message_of<ConfigError>([&] { read_rdzv_token(path); });
  }

  test::TempFolder folder_;
};

TEST_F(RdzvTokenTest, IsTheFilesContentWithoutTheSpaceAroundIt) {
  EXPECT_EQ(read_rdzv_token(file(text(" ", kGoodToken, "\r\n\n"), 0600)), kGoodToken);
  EXPECT_EQ(read_rdzv_token(file(kGoodToken, 0400)), kGoodToken);
}

TEST_F(RdzvTokenTest, AFileThatOthersCanReadIsRefusedWithItsMode) {
  for (const auto& [mode, name] :
       {std::pair{0640, "0640"}, {0604, "0604"}, {0620, "0620"}, {0601, "0601"}}) {
    const std::string path = file(kGoodToken, mode);
    EXPECT_THAT(refusal(path), HasSubstr(path));
    EXPECT_THAT(refusal(path), HasSubstr(text("mode ", name)));
    EXPECT_THAT(refusal(path), Not(HasSubstr(kGoodToken)));
  }
}

TEST_F(RdzvTokenTest, ShortEmptyAndHugeOnesAreRefused) {
  EXPECT_THAT(refusal(file("0123456789abcde\n", 0600)), HasSubstr("has 15 bytes"));
  EXPECT_THAT(refusal(file("", 0600)), HasSubstr("has 0 bytes; legal: 16 to 4096"));
  EXPECT_THAT(refusal(file(std::string(5'000, 'x'), 0600)), HasSubstr("legal: 16 to"));
}

TEST_F(RdzvTokenTest, WhatIsNoFileIsRefused) {
  EXPECT_THAT(refusal(folder_ / "none"), HasSubstr("No such file"));
  EXPECT_THAT(refusal(folder_.path()), HasSubstr("no regular file"));
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(refusal(pipe), HasSubstr("no regular file"));
}

TEST_F(RdzvTokenTest, TheFileComesBeforeTheVariable) {
  EXPECT_EQ(read_rdzv_token(""), "");
  ::setenv(kRdzvTokenVariable, "of the environment\n", 1);
  EXPECT_EQ(read_rdzv_token(""), "of the environment");
  EXPECT_EQ(read_rdzv_token(file(kGoodToken, 0600)), kGoodToken);
  ::setenv(kRdzvTokenVariable, "too short", 1);
  EXPECT_THAT(refusal(""), HasSubstr("COHORT_RDZV_TOKEN has 9 bytes"));
}

}  // namespace
}  // namespace cohort::process
