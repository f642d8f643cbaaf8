// SPDX-License-Identifier: Apache-2.0
#include "cohort/observe/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace cohort {
namespace {

using testing::HasSubstr;

TEST(Plot, AsciiCurveWithAxes) {
  const double values[] = {4, 3, 2, 1};
  EXPECT_EQ(plot(values, {.width = 4, .height = 4, .ascii = true}),
            "4 |*\n"
            "  | *\n"
            "  |  *\n"
            "1 |   *\n"
            "  +----\n"
            "   1  4\n");
}

TEST(Plot, SteepCurvesStayConnected) {
  const double values[] = {0, 10};
  EXPECT_EQ(plot(values, {.width = 2, .height = 3, .ascii = true, .first_x = 5}),
            "10 | *\n"
            "   | *\n"
            " 0 |*\n"
            "   +--\n"
            "    5 6\n");
}

TEST(Plot, BrailleHasEightDotsACell) {
  const double values[] = {1, 0};
  // Dot 1, then dots 5, 6 and 8 of one cell.
  EXPECT_THAT(plot(values, {.width = 1, .height = 1}), HasSubstr("|\u28b1\n"));
}

TEST(Plot, GapsConstantsAndNothing) {
  const double gap[] = {2, NAN, INFINITY, 2};
  EXPECT_THAT(plot(gap, {.width = 4, .height = 1, .ascii = true}),
              HasSubstr("|*  *\n"));
  const double none[] = {NAN};
  EXPECT_EQ(plot(none), "(nothing to plot)\n");
  EXPECT_EQ(plot({}), "(nothing to plot)\n");
}

TEST(Plot, ManyValuesAreAveraged) {
  std::vector<double> values;
  for (int i = 0; i < 1000; ++i) values.push_back(i % 2 ? 1 : 3);
  const auto picture = plot(values, {.width = 10, .height = 3, .ascii = true});
  EXPECT_THAT(picture, HasSubstr("|**********\n"));
  EXPECT_THAT(picture, HasSubstr(" 1     1000\n"));
}

TEST(Plot, AsciiMeansAscii) {
  const auto is_ascii = [](const std::string& picture) {
    return std::ranges::all_of(
        picture, [](char c) { return static_cast<unsigned char>(c) < 128; });
  };
  const double values[] = {4, 3, 2, 1};
  EXPECT_TRUE(is_ascii(plot(values, {.ascii = true})));
  EXPECT_FALSE(is_ascii(plot(values)));
}

}  // namespace
}  // namespace cohort
