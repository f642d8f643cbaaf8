// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/error.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(Error, IsOneLineWhateverItQuotes) {
  EXPECT_STREQ(DataError("a 'b\nc\x1b[2J\x7f'").what(), "a 'b?c?[2J?'");
  EXPECT_STREQ(DataError("Gr\xc3\xbc\xc3\x9f"
                         "e")
                   .what(),
               "Gr\xc3\xbc\xc3\x9f"
               "e");
  const std::string message = DataError(std::string(1'000'000, 'x')).what();
  EXPECT_LT(message.size(), 5'000u);
  EXPECT_TRUE(message.ends_with(" ..."));
}

TEST(Error, IsThrownAsTheClassOfItsKind) {
  EXPECT_THROW(throw_error(ErrorKind::kConfig, "m"), ConfigError);
  EXPECT_THROW(throw_error(ErrorKind::kData, "m"), DataError);
  EXPECT_THROW(throw_error(ErrorKind::kComm, "m"), CommError);
  EXPECT_THROW(throw_error(ErrorKind::kCheckpoint, "m"), CheckpointError);
  EXPECT_THROW(throw_error(ErrorKind::kBug, "m"), BugError);
}

}  // namespace
}  // namespace cohort
