// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

namespace cohort {
namespace {

TEST(Json, AnEventLine) {
  EXPECT_EQ(JsonObject()
                .add("event", "step")
                .add("step", 7)
                .add("loss", 0.5)
                .add("ok", true)
                .add("none", RawJson())
                .text(),
            R"({"event":"step","step":7,"loss":0.5,"ok":true,"none":null})");
}

TEST(Json, ObjectsAndArraysNest) {
  JsonArray ranks;
  ranks.add(0).add(JsonObject().add("a", std::string("b"))).add(JsonArray());
  EXPECT_EQ(JsonObject().add("ranks", ranks).add("o", JsonObject()).text(),
            R"({"ranks":[0,{"a":"b"},[]],"o":{}})");
}

TEST(Json, TextStaysText) {
  const char* pointer = "x";
  char array[] = "y";
  EXPECT_EQ(JsonArray().add(pointer).add(array).add(std::string_view("z")).text(),
            R"(["x","y","z"])");
}

TEST(Json, StringsAreEscaped) {
  EXPECT_EQ(json_text("a\"b\\c\n\r\t/"), R"("a\"b\\c\n\r\t/")");
  EXPECT_EQ(json_text(std::string_view("\0\x1f\x7f", 3)), "\"\\u0000\\u001f\x7f\"");
  EXPECT_EQ(JsonObject().add("k\"", 1).text(), R"({"k\"":1})");
}

TEST(Json, GoodUtf8PassesAndBadBytesAreReplaced) {
  const std::string good = "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80";
  EXPECT_EQ(json_text(good), "\"" + good + "\"");
  EXPECT_EQ(json_text("a\xff"), R"("a\ufffd")");
  EXPECT_EQ(json_text("\xc3"), R"("\ufffd")");                      // cut short
  EXPECT_EQ(json_text("\xc0\xaf"), R"("\ufffd\ufffd")");            // overlong
  EXPECT_EQ(json_text("\xed\xa0\x80"), R"("\ufffd\ufffd\ufffd")");  // surrogate
}

TEST(Json, NumbersReadBackToTheSameBits) {
  for (double value : {0.1, 1.0 / 3, 1e-8, 1e300, 5e-324, 123456789.123, -0.25}) {
    EXPECT_EQ(std::strtod(json_text(value).c_str(), nullptr), value);
  }
  EXPECT_EQ(json_text(0.1f), "0.1");
  EXPECT_EQ(json_text(std::numeric_limits<int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(json_text(std::numeric_limits<uint64_t>::max()), "18446744073709551615");
}

TEST(Json, DoublesLookLikeDoubles) {
  EXPECT_EQ(json_text(1.0), "1.0");
  EXPECT_EQ(json_text(-0.0), "-0.0");
  EXPECT_EQ(json_text(1e22), "1e+22");
}

TEST(Json, WhatIsNoNumberIsNull) {
  EXPECT_EQ(JsonArray().add(NAN).add(INFINITY).add(-INFINITY).text(),
            "[null,null,null]");
}

}  // namespace
}  // namespace cohort
