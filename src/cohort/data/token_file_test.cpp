// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_folder.h"
#include "cohort/data/testing_files.h"

namespace cohort {
namespace {

using test::message_of;
using test::write_file;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string raw(const std::vector<uint16_t>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * 2};
}

class TokenFiles : public testing::Test {
 protected:
  std::string refusal() {
    return message_of<DataError>([&] { TokenFile file(path_); });
  }
  // Writes a good file with one number of its header changed.
  void change_header(size_t at, int32_t value) {
    write_token_file(path_, std::vector<uint16_t>{1, 2, 3});
    std::string bytes = read_file(path_);
    std::memcpy(bytes.data() + at * 4, &value, 4);
    write_file(path_, bytes);
  }

  test::TempFolder folder_;
  std::string path_ = folder_ / "train.bin";
};

TEST_F(TokenFiles, WithoutAHeaderAreTokensAlone) {
  write_file(path_, raw({5, 0, 65535}));
  const TokenFile file(path_);
  EXPECT_FALSE(file.has_header());
  EXPECT_THAT(file.tokens(), ElementsAre(5, 0, 65535));
}

TEST_F(TokenFiles, WithAHeaderBeginBehindIt) {
  write_token_file(path_, std::vector<uint16_t>{7, 8, 9});
  const TokenFile file(path_);
  EXPECT_TRUE(file.has_header());
  EXPECT_THAT(file.tokens(), ElementsAre(7, 8, 9));
  const std::string bytes = read_file(path_);
  EXPECT_EQ(bytes.size(), 1024u + 6u);
  int32_t header[3];
  std::memcpy(header, bytes.data(), sizeof header);
  EXPECT_THAT(header, ElementsAre(20240520, 1, 3));
}

TEST_F(TokenFiles, MayBeEmpty) {
  write_file(path_, "");
  EXPECT_TRUE(TokenFile(path_).tokens().empty());
  write_token_file(path_, {});
  EXPECT_TRUE(TokenFile(path_).tokens().empty());
}

TEST_F(TokenFiles, ThatAreDamagedAreRefusedWithThePlace) {
  EXPECT_THAT(refusal(), AllOf(HasSubstr(path_), HasSubstr("No such file")));
  write_file(path_, "odd");
  EXPECT_THAT(refusal(), HasSubstr("has 3 bytes; expected an even number"));
  change_header(1, 7);
  EXPECT_THAT(refusal(), HasSubstr("at byte 4: version 7; expected 1"));
  change_header(2, 4);
  EXPECT_THAT(refusal(), HasSubstr("at byte 8: 4 tokens; the file has 3"));
  change_header(2, -1);
  EXPECT_THAT(refusal(), HasSubstr("at byte 8: -1 tokens; the file has 3"));
  write_token_file(path_, {});
  write_file(path_, read_file(path_).substr(0, 100));
  EXPECT_THAT(refusal(), HasSubstr("ends at byte 100, within its header"));
  path_ = folder_.path();
  EXPECT_THAT(refusal(), HasSubstr("is no regular file"));
  path_ = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(refusal(), HasSubstr("is no regular file"));
}

TEST_F(TokenFiles, HaveNoTokenBeyondTheVocabulary) {
  write_token_file(path_, std::vector<uint16_t>{1, 2, 300, 400});
  const TokenFile file(path_);
  EXPECT_NO_THROW(file.require_below(401));
  EXPECT_THAT(message_of<DataError>([&] { file.require_below(300); }),
              AllOf(HasSubstr(path_), HasSubstr("token 2 is 300; legal: 0 to 299")));
}

}  // namespace
}  // namespace cohort
