// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/token_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_folder.h"
#include "cohort/core/testing_variable.h"
#include "cohort/data/testing_files.h"
#include "cohort/data/token_file.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::write_file;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class PreparedTokens : public testing::Test {
 protected:
  PreparedTokens() { fs::create_directories(dir_); }

  static std::vector<int64_t> read(const std::vector<TokenStretch>& stretches) {
    std::vector<int64_t> all;
    for (const auto& [path, begin, end] : stretches) {
      const TokenFile file(path);
      for (int64_t i = begin; i < end; ++i)
        all.push_back(file.tokens()[static_cast<size_t>(i)]);
    }
    return all;
  }
  std::string refusal(TokenizerKind tokenizer, int64_t vocabulary = 0) const {
    return message_of<DataError>([&] {
      prepare_tokens({.dir = dir_, .tokenizer = tokenizer, .vocabulary = vocabulary});
    });
  }

  test::TempFolder folder_;
  std::string dir_ = folder_ / "data";
  std::string cache_ = folder_ / "cache";
  test::WithVariable variable_{"COHORT_CACHE", cache_.c_str()};
};

std::string story(int lines) {
  std::string out;
  for (int i = 0; i < lines; ++i) out += text("and he went to place ", i, "\n");
  return out;
}

TEST_F(PreparedTokens, OfTextAreItsDocumentsWithAnEndEach) {
  write_file(dir_ + "/a.txt", "ab\nc\n");
  write_file(dir_ + "/b.txt", "d\ne\n");
  const TokenSets sets = prepare_tokens({.dir = dir_});
  EXPECT_EQ(sets.name, dir_);
  EXPECT_THAT(read(sets.train), ElementsAre('a', 'b', '\n', 'c', '\n', 256, 'd', '\n'));
  EXPECT_THAT(read(sets.valid), ElementsAre('e', '\n', 256));
}

TEST_F(PreparedTokens, AreMadeOnceAndAnewForOtherText) {
  write_file(dir_ + "/a.txt", story(30));
  const TokenSets sets = prepare_tokens({.dir = dir_});
  const auto made = fs::last_write_time(sets.train.at(0).path);
  EXPECT_EQ(prepare_tokens({.dir = dir_}), sets);
  EXPECT_EQ(fs::last_write_time(sets.train.at(0).path), made);
  write_file(dir_ + "/a.txt", story(31));
  const TokenSets others = prepare_tokens({.dir = dir_});
  EXPECT_NE(others.train.at(0).path, sets.train.at(0).path);
  const TokenSets pairs = prepare_tokens(
      {.dir = dir_, .tokenizer = TokenizerKind::kBpe, .vocabulary = 300});
  EXPECT_NE(pairs.train.at(0).path, others.train.at(0).path);
}

TEST_F(PreparedTokens, OfBytePairsLieBesideTheirModel) {
  write_file(dir_ + "/a.txt", story(50));
  const TokenSets sets = prepare_tokens(
      {.dir = dir_, .tokenizer = TokenizerKind::kBpe, .vocabulary = 300});
  EXPECT_EQ(fs::path(sets.tokenizer).parent_path(),
            fs::path(sets.train.at(0).path).parent_path());
  const auto tokenizer = make_bpe_tokenizer(read_file(sets.tokenizer), sets.tokenizer);
  EXPECT_EQ(tokenizer->decode(read(sets.train)) + tokenizer->decode(read(sets.valid)),
            story(50));
  EXPECT_EQ(read(sets.valid).back(), tokenizer->vocabulary().end_of_text);
}

TEST_F(PreparedTokens, ReadyOnesAreTakenAsTheyAre) {
  write_token_file(dir_ + "/fineweb_train_000002.bin", std::vector<uint16_t>{3, 4});
  write_file(dir_ + "/fineweb_train_000001.bin", std::string("\1\0\2\0", 4));
  write_token_file(dir_ + "/fineweb_val_000000.bin", std::vector<uint16_t>{5});
  const TokenSets sets =
      prepare_tokens({.dir = dir_, .tokenizer = TokenizerKind::kNone, .vocabulary = 6});
  EXPECT_THAT(read(sets.train), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(read(sets.valid), ElementsAre(5));
  EXPECT_EQ(decode_token_sets(encode(sets)), sets);
  EXPECT_FALSE(fs::exists(cache_));
}

TEST(TokenSets, CrossToPeersWhateverTheirNamesHave) {
  const TokenSets sets{.name = "two\nlines",
                       .tokenizer = " a model ",
                       .train = {{"/a b\n/c.bin", 0, 7}, {" ", 7, 7}},
                       .valid = {{"v 1 2 /d.bin", int64_t{1} << 40, int64_t{1} << 41}}};
  EXPECT_EQ(decode_token_sets(encode(sets)), sets);
  EXPECT_EQ(decode_token_sets(encode(TokenSets{})), TokenSets{});
}

TEST(TokenSets, RefuseDamagedBytes) {
  const std::string record =
      encode(TokenSets{.name = "a", .tokenizer = "b", .train = {{"/c", 0, 300}}});
  const auto refused = [](const std::string& bytes) {
    return message_of<CommError>([&] { decode_token_sets(bytes); });
  };
  for (size_t size = 0; size < record.size(); ++size)
    EXPECT_THAT(refused(record.substr(0, size)), HasSubstr("tells no tokens")) << size;
  EXPECT_THAT(refused(record + "x"), HasSubstr("tells no tokens"));
  EXPECT_THAT(refused(encode(TokenSets{.train = {{"/c", 5, 4}}})),
              HasSubstr("[5, 4) of '/c'"));
  EXPECT_THAT(refused(encode(TokenSets{.valid = {{"", 0, 4}}})), HasSubstr("[0, 4)"));
  EXPECT_THAT(refused(encode(TokenSets{.valid = {{"/c", -1, 4}}})),
              HasSubstr("[-1, 4)"));
}

TEST_F(PreparedTokens, WithoutAFileForValidationTheLastTenthIs) {
  const std::string path = dir_ + "/all.bin";
  write_token_file(path, std::vector<uint16_t>(25, 2));
  const TokenSets sets =
      prepare_tokens({.dir = path, .tokenizer = TokenizerKind::kNone, .vocabulary = 6});
  EXPECT_THAT(sets.train, ElementsAre(TokenStretch{path, 0, 23}));
  EXPECT_THAT(sets.valid, ElementsAre(TokenStretch{path, 23, 25}));
}

TEST_F(PreparedTokens, WhatIsNotThereIsRefusedWithWhatIsLegal) {
  EXPECT_THAT(refusal(TokenizerKind::kByte), HasSubstr("no text there"));
  EXPECT_THAT(refusal(TokenizerKind::kNone, 10),
              AllOf(HasSubstr(dir_), HasSubstr("expected train.bin and val.bin")));
  write_token_file(dir_ + "/train.bin", std::vector<uint16_t>{1, 12});
  EXPECT_THAT(refusal(TokenizerKind::kNone, 10),
              AllOf(HasSubstr("train.bin"), HasSubstr("token 1 is 12"),
                    HasSubstr("legal: 0 to 9")));
  dir_ = "";
  EXPECT_THAT(refusal(TokenizerKind::kNone, 10), HasSubstr("data.dir is not set"));
}

TEST_F(PreparedTokens, NeedSomewhereToBeKept) {
  write_file(dir_ + "/a.txt", story(30));
  const test::WithVariable no_cache("COHORT_CACHE", nullptr);
  const test::WithVariable no_xdg("XDG_CACHE_HOME", nullptr);
  const test::WithVariable no_home("HOME", nullptr);
  EXPECT_THAT(refusal(TokenizerKind::kByte), HasSubstr("set COHORT_CACHE"));
}

TEST(TokenVocabulary, IsKnownBeforeThereAreTokens) {
  EXPECT_EQ(vocabulary_of({}).size, 257);
  EXPECT_EQ(vocabulary_of({.tokenizer = TokenizerKind::kBpe, .vocabulary = 500}).size,
            500);
  const auto ready =
      vocabulary_of({.tokenizer = TokenizerKind::kNone, .vocabulary = 50257});
  EXPECT_EQ(ready.size, 50257);
  EXPECT_EQ(ready.end_of_text, 50256);
  EXPECT_EQ(ready.size_with_mask(), 50258);
}

TEST(TokenVocabulary, AnUnknownTokenizerIsRefused) {
  EXPECT_EQ(parse_tokenizer("none"), TokenizerKind::kNone);
  EXPECT_THAT(message_of<ConfigError>([] { parse_tokenizer("word"); }),
              HasSubstr("data.tokenizer=word; legal: byte, bpe or none"));
}

}  // namespace
}  // namespace cohort
