// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/block_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"

namespace cohort {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int> chosen(std::string_view text) {
  const BlockChoice choice = BlockChoice::parse(text, "step.recompute");
  std::vector<int> blocks;
  for (int b = 0; b < 6; ++b)
    if (choice.has(b)) blocks.push_back(b);
  EXPECT_EQ(static_cast<bool>(choice), !blocks.empty()) << text;
  return blocks;
}

TEST(BlockChoice, HasTheBlocksThatItsTextNames) {
  for (const char* none : {"none", "false", "off", "0"})
    EXPECT_THAT(chosen(none), ElementsAre()) << none;
  for (const char* all : {"all", " all ", "true", "on", "1", "every=1"})
    EXPECT_THAT(chosen(all), ElementsAre(0, 1, 2, 3, 4, 5)) << all;
  EXPECT_THAT(chosen("every=2"), ElementsAre(0, 2, 4));
  EXPECT_THAT(chosen("every=100"), ElementsAre(0));
  EXPECT_THAT(chosen("blocks=1"), ElementsAre(1));
  EXPECT_THAT(chosen("blocks=0-2, 4"), ElementsAre(0, 1, 2, 4));
}

TEST(BlockChoice, IsWrittenAsItIsRead) {
  for (const char* text : {"none", "all", "every=3", "blocks=0-2,4"})
    EXPECT_EQ(BlockChoice::parse(text, "x").text(), text);
}

TEST(BlockChoice, RefusesAnythingElseWithWhatIsLegal) {
  for (const char* bad :
       {"", "some", "every=", "every=0", "every=-1", "every=x", "blocks=", "blocks=a",
        "blocks=1,", "blocks=3-1", "blocks=-1", "blocks=1-2-3", "2"}) {
    const std::string said = test::message_of<ConfigError>(
        [&] { (void)BlockChoice::parse(bad, "step.recompute"); });
    EXPECT_THAT(said, HasSubstr(std::string("step.recompute is '") + bad));
    EXPECT_THAT(said, HasSubstr("legal: none, all, every=K"));
  }
}

TEST(BlockChoice, NamesABlockThatIsNotThere) {
  const BlockChoice choice = BlockChoice::parse("blocks=0,3-5", "step.recompute");
  choice.require_within(6, "step.recompute");
  EXPECT_THAT(test::message_of<ConfigError>(
                  [&] { choice.require_within(5, "step.recompute"); }),
              HasSubstr("names block 5; legal: 0 to 4"));
}

}  // namespace
}  // namespace cohort
