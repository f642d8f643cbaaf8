// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/record.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>

#include "cohort/core/testing_error.h"

namespace cohort {
namespace {

using std::chrono::steady_clock;

enum class Colour : int8_t { kRed = -1, kBlue = 7 };

struct Inner {
  int id = 0;
  std::string name;
  bool operator==(const Inner&) const = default;
};
auto record_fields(Alike<Inner> auto& inner) { return std::tie(inner.id, inner.name); }

// A field of each kind.
struct Everything {
  bool yes = false;
  int small = 0;
  int64_t large = 0;
  uint64_t word = 0;
  uint8_t byte = 0;
  double number = 0;
  Colour colour = Colour::kRed;
  std::string bytes;
  std::optional<double> maybe;
  uint64_t fixed[2] = {};
  std::vector<Inner> list;
  std::vector<std::vector<int64_t>> lists;
  std::map<std::string, int> map;
  std::pair<int, std::string> pair;
  steady_clock::time_point when;

  bool operator==(const Everything& other) const = default;
};
auto record_fields(Alike<Everything> auto& e) {
  return std::tie(e.yes, e.small, e.large, e.word, e.byte, e.number, e.colour, e.bytes,
                  e.maybe, e.fixed, e.list, e.lists, e.map, e.pair, e.when);
}

Everything everything() {
  return {.yes = true,
          .small = -3,
          .large = std::numeric_limits<int64_t>::min(),
          .word = std::numeric_limits<uint64_t>::max(),
          .byte = 255,
          .number = -0.1,
          .colour = Colour::kBlue,
          .bytes = std::string("a\0\n\xff b", 6),
          .maybe = 0.5,
          .fixed = {1, 1'000'000},
          .list = {{1, "one"}, {2, ""}},
          .lists = {{}, {1, -1}, {300}},
          .map = {{"", 1}, {"x", 2}},
          .pair = {9, "nine"},
          .when = steady_clock::time_point(steady_clock::duration(123'456'789))};
}

template <typename T>
void expect_back(const T& value) {
  const std::string bytes = to_record(value);
  const auto back = try_read_record<T>(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, value);
  EXPECT_EQ(to_record(*back), bytes);
}

template <typename T>
std::string trouble_with(std::string_view bytes) {
  return test::message_of<CommError>(
      [&] { read_record<T>(bytes, ErrorKind::kComm, "[test] no record"); });
}

// Those bytes where the fields of a T are to be.
template <typename T>
std::string with_mark(std::string_view bytes) {
  return to_record(T{}).substr(0, kRecordMarkBytes) + std::string(bytes);
}

TEST(Record, EveryKindOfFieldComesBack) {
  expect_back(Everything{});
  expect_back(everything());
  expect_back(std::tuple(1, std::string("a"), true));
  expect_back(std::string());
}

TEST(Record, NumbersComeBackAtTheirLimits) {
  for (const int64_t n : {0, 1, -1, 63, 64, -64, -65, 127, 128}) expect_back(n);
  for (int bit = 0; bit < 63; ++bit) {
    expect_back(int64_t{1} << bit);
    expect_back(-(int64_t{1} << bit));
    expect_back((uint64_t{2} << bit) - 1);
    expect_back(uint64_t{2} << bit);
  }
  expect_back(std::numeric_limits<int64_t>::max());
  expect_back(std::numeric_limits<int>::min());
  expect_back(std::numeric_limits<int>::max());
  expect_back(std::numeric_limits<int16_t>::min());
}

TEST(Record, DoublesKeepTheirBits) {
  const double numbers[] = {0.0,
                            -0.0,
                            0.1,
                            std::numeric_limits<double>::denorm_min(),
                            std::numeric_limits<double>::infinity(),
                            std::nan("77")};
  for (const double number : numbers) {
    const auto back = try_read_record<double>(to_record(number));
    ASSERT_TRUE(back);
    EXPECT_EQ(std::bit_cast<uint64_t>(*back), std::bit_cast<uint64_t>(number));
  }
}

TEST(Record, SmallOnesTakeFewBytes) {
  EXPECT_EQ(to_record(Inner{-1, "ab"}).size(), kRecordMarkBytes + 4);
}

TEST(Record, CutAnywhereItIsRefused) {
  const std::string whole = to_record(everything());
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(try_read_record<Everything>(whole.substr(0, size))) << size;
  EXPECT_FALSE(try_read_record<Everything>(whole + '\0'));
}

TEST(Record, AlteredAnywhereItIsAnotherOneOrRefused) {
  const std::string whole = to_record(everything());
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int bits : {0x01, 0x80, 0xff}) {
      std::string altered = whole;
      altered[at] = static_cast<char>(altered[at] ^ bits);
      const auto read = try_read_record<Everything>(altered);
      EXPECT_EQ(read ? to_record(*read) : altered, altered) << at;
    }
  }
}

TEST(Record, WithOtherFieldsIsRefused) {
  const std::string inner = to_record(Inner{1, "a"});
  EXPECT_TRUE((try_read_record<std::tuple<int64_t, std::string>>(inner)));
  EXPECT_FALSE((try_read_record<std::tuple<unsigned, std::string>>(inner)));
  EXPECT_FALSE((try_read_record<std::tuple<std::string, int>>(inner)));
  EXPECT_FALSE(try_read_record<std::vector<Inner>>(inner));
  EXPECT_FALSE(try_read_record<std::optional<Inner>>(inner));
  for (const char* garbage : {"", "x", "3 words and more", "0 1 2 3\n4\n5\n"})
    EXPECT_FALSE(try_read_record<Inner>(garbage)) << garbage;
}

TEST(Record, LengthsThatCannotBeAreRefusedBeforeMemoryIsTaken) {
  const std::string giant = "\xff\xff\xff\xff\xff\xff\xff\xff\x7f";  // 2^63 - 1
  EXPECT_FALSE(try_read_record<std::string>(with_mark<std::string>(giant)));
  EXPECT_FALSE(
      try_read_record<std::vector<double>>(with_mark<std::vector<double>>(giant)));
  using Map = std::map<int, int>;
  EXPECT_FALSE(try_read_record<Map>(with_mark<Map>(giant)));
  using Lists = std::vector<std::vector<std::string>>;
  EXPECT_FALSE(try_read_record<Lists>(with_mark<Lists>("\1" + giant)));
}

TEST(Record, EachValueHasOneForm) {
  EXPECT_TRUE(try_read_record<int>(with_mark<int>("\2")));
  EXPECT_FALSE(
      try_read_record<int>(with_mark<int>({"\x82\0", 2})));  // the same, longer
  EXPECT_FALSE(try_read_record<bool>(with_mark<bool>("\2")));
  EXPECT_FALSE(try_read_record<uint8_t>(with_mark<uint8_t>("\x80\2")));  // 256
  EXPECT_FALSE(try_read_record<int8_t>(with_mark<int8_t>("\x80\2")));    // 128
  const std::string ones(9, '\xff');
  EXPECT_TRUE(try_read_record<uint64_t>(with_mark<uint64_t>(ones + "\1")));
  EXPECT_FALSE(try_read_record<uint64_t>(with_mark<uint64_t>(ones + "\2")));
  EXPECT_FALSE(try_read_record<uint64_t>(with_mark<uint64_t>(ones + "\xff\1")));
  using Map = std::map<int, int>;
  EXPECT_TRUE(try_read_record<Map>(with_mark<Map>({"\2\0\0\2\0", 5})));
  EXPECT_FALSE(try_read_record<Map>(with_mark<Map>({"\2\2\0\0\0", 5})));
  EXPECT_FALSE(try_read_record<Map>(with_mark<Map>({"\2\0\0\0\0", 5})));
}

TEST(Record, TheErrorSaysWhatAndWhere) {
  const std::string whole = to_record(Inner{1, "name"});
  EXPECT_EQ(trouble_with<Inner>(whole.substr(0, 8)),
            "[test] no record: at byte 6 of 8: 4 bytes or more should follow; there "
            "are 2");
  EXPECT_EQ(trouble_with<Inner>(whole.substr(0, 2)),
            "[test] no record: at byte 0 of 2: it ends too early");
  EXPECT_EQ(
      trouble_with<Inner>("some other words"),
      "[test] no record: at byte 4 of 16: it begins with the mark of other fields");
  EXPECT_EQ(trouble_with<Inner>(whole + "x"),
            "[test] no record: at byte 10 of 11: it should end there");
  EXPECT_THROW(read_record<int>("", ErrorKind::kBug, ""), BugError);
  EXPECT_THROW(read_record<int>("", ErrorKind::kCheckpoint, ""), CheckpointError);
}

}  // namespace
}  // namespace cohort
