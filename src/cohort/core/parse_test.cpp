// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/core/testing_error.h"

namespace cohort {
namespace {

using testing::ElementsAre;

TEST(Parse, Ints) {
  EXPECT_EQ(parse_int("128", "x"), 128);
  EXPECT_EQ(parse_int(" -7\n", "x"), -7);
  EXPECT_EQ(parse_int("+7", "x"), 7);
  EXPECT_EQ(parse_int("9223372036854775807", "x"), INT64_MAX);
  for (auto bad : {"", " ", "1.5", "1e3", "0x10", "7 8", "+-7", "--7", "+",
                   "9223372036854775808", "abc"}) {
    EXPECT_EQ(try_parse_int(bad), std::nullopt) << bad;
  }
}

TEST(Parse, Doubles) {
  EXPECT_EQ(try_parse_double("0.05"), 0.05);
  EXPECT_EQ(try_parse_double("1e-8"), 1e-8);
  EXPECT_EQ(try_parse_double("-3"), -3);
  for (auto bad : {"", "nan", "inf", "-inf", "1e999", "1,5", "0.1x", "+-1"}) {
    EXPECT_EQ(try_parse_double(bad), std::nullopt) << bad;
  }
}

TEST(Parse, Bools) {
  for (auto yes : {"true", "on", "yes", "1"}) EXPECT_EQ(try_parse_bool(yes), true);
  for (auto no : {"false", "off", "no", "0"}) EXPECT_EQ(try_parse_bool(no), false);
  for (auto bad : {"", "True!", "2", "maybe"}) {
    EXPECT_EQ(try_parse_bool(bad), std::nullopt) << bad;
  }
}

TEST(Parse, SizesAreThousandBased) {
  EXPECT_EQ(parse_bytes("4096", "x"), 4096);
  EXPECT_EQ(parse_bytes("4K", "x"), 4000);
  EXPECT_EQ(parse_bytes("100M", "x"), 100'000'000);
  EXPECT_EQ(parse_bytes("1.5GB", "x"), 1'500'000'000);
  EXPECT_EQ(parse_bytes("2t", "x"), 2'000'000'000'000);
  EXPECT_EQ(parse_bytes("4Ki", "x"), 4096);
  EXPECT_EQ(parse_bytes("1MiB", "x"), 1 << 20);
  EXPECT_EQ(parse_bytes("0", "x"), 0);
  for (auto bad : {"", "K", "B", "4X", "4KK", "-1K", "1.5", "0.0001K", "4i", "4iB",
                   "nan", "1e300G", "4 K 5"}) {
    EXPECT_EQ(try_parse_bytes(bad), std::nullopt) << bad;
  }
}

TEST(Parse, ErrorsSayWhatWasGivenAndWhatIsLegal) {
  EXPECT_EQ(test::message_of<ConfigError>([] { parse_int("two", "-n"); }),
            "[core.parse] -n: 'two' is not a whole number, such as 4");
  EXPECT_EQ(test::message_of<ConfigError>([] { parse_int("0", "-n", 1, 4096); }),
            "[core.parse] -n: 0 is out of range; legal: 1 to 4096");
  EXPECT_EQ(test::message_of<ConfigError>([] { parse_bytes("12X", "--bytes"); }),
            "[core.parse] --bytes: '12X' is not a size, such as 4096, 4K or 100M "
            "(1000-based)");
}

TEST(Parse, RangesIncludeTheirEnds) {
  EXPECT_EQ(parse_int("1", "x", 1, 3), 1);
  EXPECT_EQ(parse_int("3", "x", 1, 3), 3);
  EXPECT_THROW(parse_int("4", "x", 1, 3), ConfigError);
}

TEST(Parse, SplitKeepsEmptyParts) {
  EXPECT_THAT(split("a, b,c", ','), ElementsAre("a", "b", "c"));
  EXPECT_THAT(split("a", ','), ElementsAre("a"));
  EXPECT_THAT(split(",a,,", ','), ElementsAre("", "a", "", ""));
  EXPECT_THAT(split("", ','), ElementsAre());
  EXPECT_EQ(join({"a", "b", "c"}, ", "), "a, b, c");
  EXPECT_EQ(join({}, ", "), "");
}

}  // namespace
}  // namespace cohort
