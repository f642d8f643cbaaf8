// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace cohort {
namespace {

TEST(Format, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(4096), "4.10 KB");
  EXPECT_EQ(format_bytes(100e6), "100 MB");
  EXPECT_EQ(format_bytes(999.7e6), "1.00 GB");
  EXPECT_EQ(format_bytes(12.34e9), "12.3 GB");
  EXPECT_EQ(format_bytes(5e18), "5000 PB");
}

TEST(Format, Durations) {
  EXPECT_EQ(format_duration(0), "0 s");
  EXPECT_EQ(format_duration(12.34e-6), "12.3 us");
  EXPECT_EQ(format_duration(0.35), "350 ms");
  EXPECT_EQ(format_duration(0.9999), "1.00 s");
  EXPECT_EQ(format_duration(4.2), "4.20 s");
  EXPECT_EQ(format_duration(59.96), "1 min 00 s");
  EXPECT_EQ(format_duration(125), "2 min 05 s");
  EXPECT_EQ(format_duration(3 * 3600 + 7 * 60), "3 h 07 min");
  EXPECT_EQ(format_duration(-4.2), "-4.20 s");
  EXPECT_EQ(format_duration(NAN), "?");
}

TEST(Format, Clock) {
  EXPECT_EQ(format_clock(7.9), "00:07");
  EXPECT_EQ(format_clock(754), "12:34");
  EXPECT_EQ(format_clock(3723), "1:02:03");
  EXPECT_EQ(format_clock(-1), "?");
  EXPECT_EQ(format_clock(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(format_clock(NAN), "?");
}

TEST(Format, Quantities) {
  EXPECT_EQ(format_quantity(0), "0");
  EXPECT_EQ(format_quantity(0.01234), "0.0123");
  EXPECT_EQ(format_quantity(857.4), "857");
  EXPECT_EQ(format_quantity(1265), "1265");
  EXPECT_EQ(format_quantity(12345), "12.3K");
  EXPECT_EQ(format_quantity(524e3), "524K");
  EXPECT_EQ(format_quantity(1.5e6), "1.50M");
  EXPECT_EQ(format_quantity(NAN), "nan");
}

TEST(Format, FixedDigits) {
  EXPECT_EQ(format_fixed(1.0 / 3, 4), "0.3333");
  EXPECT_EQ(format_fixed(NAN, 2), "nan");
  EXPECT_EQ(format_fixed(-INFINITY, 2), "-inf");
  EXPECT_EQ(format_fixed(1e300, 4), "1e+300");
}

TEST(Format, Shapes) {
  EXPECT_EQ(format_shape({}), "scalar");
  EXPECT_EQ(format_shape(std::vector<int64_t>{512}), "512");
  EXPECT_EQ(format_shape(std::vector<int64_t>{3, 0, 16}), "3x0x16");
}

TEST(Format, TimesAreUtc) {
  EXPECT_EQ(format_time(std::chrono::system_clock::from_time_t(1700000000)),
            "2023-11-14T22:13:20Z");
}

}  // namespace
}  // namespace cohort
