// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/text_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_folder.h"
#include "cohort/core/testing_variable.h"
#include "cohort/data/testing_files.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::WithVariable;
using test::write_file;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::string lines(int from, int to) {
  std::string out;
  for (int i = from; i < to; ++i) out += text("line ", i, "\n");
  return out;
}

std::vector<std::pair<std::string, std::string>> parts_of(const TextFiles& files) {
  std::vector<std::pair<std::string, std::string>> all;
  for_each_document(files, [&](const TextParts& parts) {
    all.emplace_back(std::string(parts.train), std::string(parts.valid));
  });
  return all;
}

TEST(TextFiles, AFolderHasAllBelowItInOneOrder) {
  const test::TempFolder folder;
  fs::create_directories(folder / "b/deep");
  write_file(folder / "c.txt", "c\n");
  write_file(folder / "b/deep/a.md", "a\n");
  write_file(folder / "b/z.txt", "z\n");
  write_file(folder / "b/picture.png", "p\n");
  write_file(folder / "empty.txt", "");
  const TextFiles found = find_text(folder.path());
  EXPECT_THAT(found.files, ElementsAre(folder / "b/deep/a.md", folder / "b/z.txt",
                                       folder / "c.txt"));
}

TEST(TextFiles, OneFileMayHaveAnyName) {
  const test::TempFolder folder;
  write_file(folder / "notes", "a\nb\n");
  EXPECT_THAT(find_text(folder / "notes").files, ElementsAre(folder / "notes"));
}

TEST(TextFiles, AFolderWithoutTextIsRefused) {
  const test::TempFolder folder;
  const auto refusal = [&](const std::string& path) {
    return message_of<DataError>([&] { find_text(path); });
  };
  write_file(folder / "train.bin", "ab");
  EXPECT_THAT(refusal(folder.path()),
              AllOf(HasSubstr(folder.path()), HasSubstr("no text there"),
                    HasSubstr("*.txt or *.md"), HasSubstr("data.tokenizer=none")));
  EXPECT_THAT(refusal(folder / "nowhere"), HasSubstr("is not there"));
}

TEST(TextFiles, ChangedFilesHaveAnotherFingerprint) {
  const test::TempFolder folder;
  write_file(folder / "a.txt", "a\n");
  const auto before = find_text(folder.path()).fingerprint();
  EXPECT_EQ(find_text(folder.path()).fingerprint(), before);
  write_file(folder / "a.txt", "bb\n");
  EXPECT_NE(find_text(folder.path()).fingerprint(), before);
}

TEST(TextFiles, TheLastTenthOfLinesIsForValidation) {
  const test::TempFolder folder;
  write_file(folder / "a.txt", lines(0, 15));
  write_file(folder / "b.txt", lines(15, 22) + "and the last");
  EXPECT_THAT(parts_of(find_text(folder.path())),
              ElementsAre(Pair(lines(0, 15), ""),
                          Pair(lines(15, 21), "line 21\nand the last")));
}

TEST(TextFiles, AtLeastOneLineIsForValidation) {
  const test::TempFolder folder;
  write_file(folder / "a.txt", "one\n");
  EXPECT_THAT(message_of<DataError>([&] { parts_of(find_text(folder.path())); }),
              HasSubstr("has 1 lines; expected 2 or more"));
  write_file(folder / "b.txt", "two\n");
  EXPECT_THAT(parts_of(find_text(folder.path())),
              ElementsAre(Pair("one\n", ""), Pair("", "two\n")));
}

TEST(BibleText, IsPrintedOnceAndKept) {
  const test::TempFolder folder;
  write_file(folder / "bible",
             "#!/bin/sh\necho 'Gen1:1 In the beginning'\necho 'Rev22:21 Amen.'\n");
  fs::permissions(folder / "bible", fs::perms::owner_all);
  const std::string path = folder.path() + ":/usr/bin:/bin";
  const fs::path cache = folder / "cache/text";
  {
    const WithVariable ours("PATH", path.c_str());
    const TextFiles found = bible_text(cache);
    EXPECT_EQ(found.name, "bible-kjv");
    EXPECT_EQ(read_file(found.files.at(0)), "In the beginning\nAmen.\n");
  }
  const WithVariable none("PATH", "/nowhere");
  EXPECT_EQ(read_file(bible_text(cache).files.at(0)), "In the beginning\nAmen.\n");
  EXPECT_THAT(message_of<DataError>([&] { bible_text(folder / "other"); }),
              AllOf(HasSubstr("bible-kjv"), HasSubstr("data.dir"),
                    HasSubstr("data.synthetic=true")));
  EXPECT_FALSE(fs::exists(folder / "other"));
}

TEST(BibleText, OneThatFailsLeavesNothing) {
  const test::TempFolder folder;
  write_file(folder / "bible", "#!/bin/sh\necho 'Gen1:1 In the'\nexit 1\n");
  fs::permissions(folder / "bible", fs::perms::owner_all);
  const std::string path = folder.path() + ":/usr/bin:/bin";
  const WithVariable ours("PATH", path.c_str());
  EXPECT_THAT(message_of<DataError>([&] { bible_text(folder / "cache"); }),
              HasSubstr("prints nothing"));
  EXPECT_FALSE(fs::exists(folder / "cache"));
}

// What Debian's package prints.
TEST(BibleText, HasItsVerses) {
  const test::TempFolder folder;
  const std::string text = read_file(bible_text(folder / "text").files.at(0));
  EXPECT_EQ(text.size(), 4'137'850u);
  EXPECT_EQ(text.substr(0, 24), "In the beginning God cre");
}

}  // namespace
}  // namespace cohort
