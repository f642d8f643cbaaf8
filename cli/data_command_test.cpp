// SPDX-License-Identifier: Apache-2.0
#include "cli/data_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_folder.h"
#include "cohort/data/token_file.h"

namespace cohort::cli {
namespace {

using testing::HasSubstr;

TEST(DataCommand, MakesTokensThatCanBeRead) {
  const test::TempFolder folder;
  std::ostringstream out;
  DataArgs args{.kind = "tokens", .path = folder / "new", .count = 500, .vocab = 300};
  EXPECT_EQ(make_data(args, out), 0);
  EXPECT_EQ(out.str(), text(args.path, "/train.bin: 500 tokens\n", args.path,
                            "/val.bin: 50 tokens\n"));
  const TokenFile train(args.path + "/train.bin");
  EXPECT_TRUE(train.has_header());
  EXPECT_EQ(train.tokens().size(), 500u);
  EXPECT_NO_THROW(train.require_below(300));
  const std::string first = read_file(train.path());
  make_data(args, out);
  EXPECT_EQ(read_file(train.path()), first);
  args.seed = 1;
  make_data(args, out);
  EXPECT_NE(read_file(train.path()), first);
}

TEST(DataCommand, TellsWhatAFileHolds) {
  const test::TempFolder folder;
  write_token_file(folder / "a.bin", std::vector<uint16_t>{4, 9, 2});
  DataArgs args{.path = folder / "a.bin"};
  std::ostringstream out, json;
  EXPECT_EQ(show_data(args, out), 0);
  EXPECT_EQ(out.str(),
            text(args.path, ": 3 tokens in the form of llm.c, the largest 9\n"));
  args.json = true;
  show_data(args, json);
  EXPECT_EQ(json.str(), text(R"({"path":")", args.path,
                             R"(","form":"llm.c","tokens":3,"largest":9})", "\n"));
}

TEST(DataCommand, RefusesWhatThereIsNot) {
  std::ostringstream out;
  EXPECT_THAT(test::message_of<ConfigError>(
                  [&] { make_data({.kind = "imagenet", .path = "x"}, out); }),
              HasSubstr("make imagenet; legal: tokens"));
  EXPECT_THAT(
      test::message_of<DataError>([&] { show_data({.path = "/nowhere"}, out); }),
      HasSubstr("/nowhere: No such file"));
}

}  // namespace
}  // namespace cohort::cli
