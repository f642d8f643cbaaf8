// SPDX-License-Identifier: Apache-2.0
#include "cohort/observe/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <regex>

#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_folder.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string hex(std::string_view bytes) {
  std::string digits;
  for (const unsigned char c : bytes) {
    digits += "0123456789abcdef"[c >> 4];
    digits += "0123456789abcdef"[c & 15];
  }
  return digits;
}

EventLog read_event_file(const fs::path& path) {
  return decode_events(read_file(path), path.string());
}

Event loss_event() {
  return {.wall_time = 1700000000.0,
          .step = 7,
          .file_version = "",
          .scalars = {{"loss", 0.5f}}};
}

TEST(EventFile, Crc32cHasItsCheckValue) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(""), 0u);
}

// The layout of TensorFlow's records and its protobuf encoding, computed by hand from
// their definitions with an independent implementation of both.
TEST(EventFile, BytesAreTheGoldenOnes) {
  const Event version{.wall_time = 1700000000.0,
                      .step = 0,
                      .file_version = "brain.Event:2",
                      .scalars = {}};
  EXPECT_EQ(hex(encode_event(version)),
            "1800000000000000a37f4b220900000040fc54d9411a0d627261696e2e4576656e743a32"
            "eced8f9d");
  EXPECT_EQ(hex(encode_event(loss_event())),
            "1a00000000000000129bd82d0900000040fc54d94110072a0d0a0b0a046c6f7373150000"
            "003f2c75eab7");
}

TEST(EventFile, EventsComeBack) {
  Event several = loss_event();
  several.step = -3;
  several.scalars.push_back({"time/data", -1e-30f});
  const auto log =
      decode_events(encode_event(loss_event()) + encode_event(several), "x");
  ASSERT_EQ(log.events.size(), 2u);
  EXPECT_FALSE(log.truncated);
  EXPECT_EQ(log.events[0].wall_time, 1700000000.0);
  EXPECT_EQ(log.events[0].step, 7);
  EXPECT_EQ(log.events[1].step, -3);
  ASSERT_EQ(log.events[1].scalars.size(), 2u);
  EXPECT_EQ(log.events[1].scalars[1].tag, "time/data");
  EXPECT_EQ(log.events[1].scalars[1].value, -1e-30f);
}

TEST(EventFile, ARecordCutAnywhereIsSkipped) {
  const std::string one = encode_event(loss_event());
  for (size_t cut = 1; cut < one.size(); ++cut) {
    const auto log = decode_events(one + one.substr(0, cut), "x");
    EXPECT_EQ(log.events.size(), 1u) << cut;
    EXPECT_TRUE(log.truncated) << cut;
  }
  EXPECT_FALSE(decode_events(one + one, "x").truncated);
}

TEST(EventFile, AFlippedBitAnywhereIsNamedWithItsPlace) {
  const std::string one = encode_event(loss_event());
  for (size_t at = 0; at < one.size(); ++at) {
    std::string bytes = one + one;
    bytes[one.size() + at] = static_cast<char>(bytes[one.size() + at] ^ 0x10);
    EXPECT_THAT(test::message_of<DataError>([&] { decode_events(bytes, "x"); }),
                HasSubstr(text("x: damaged record at byte ", one.size())))
        << "byte " << at;
  }
}

class EventFolder : public testing::Test {
 protected:
  test::TempFolder owner_;
  fs::path folder_ = owner_.path();
};

TEST_F(EventFolder, WritesWhatIsReadBack) {
  fs::path path;
  {
    EventFile file(folder_ / "run" / "a");
    path = file.path();
    EXPECT_EQ(read_event_file(path).events.size(), 1u);  // the version is there at once
    file.add(1, "loss", 2.5f);
    file.flush();
    EXPECT_EQ(read_event_file(path).events.size(), 2u);
    for (int step = 2; step <= 3000; ++step) {
      file.add(step, std::vector<Scalar>{{"loss", 1.0f}, {"lr", 0.1f}});
    }
  }
  const auto log = read_event_file(path);
  ASSERT_EQ(log.events.size(), 3001u);
  EXPECT_EQ(log.events[0].file_version, "brain.Event:2");
  EXPECT_EQ(log.events[1].scalars[0].value, 2.5f);
  EXPECT_EQ(log.events[3000].step, 3000);
  EXPECT_GT(log.events[0].wall_time, 1.7e9);
}

TEST_F(EventFolder, EachWriterHasItsOwnFile) {
  EventFile a(folder_), b(folder_);
  EXPECT_NE(a.path(), b.path());
  EXPECT_TRUE(
      std::regex_match(a.path().filename().string(),
                       std::regex(text("events\\.out\\.tfevents\\.[0-9]{10}\\..+\\.",
                                       ::getpid(), "\\.0"))))
      << a.path();
}

TEST_F(EventFolder, AFolderThatCannotBeMadeIsNamed) {
  write_file_atomically(folder_ / "file", "");
  EXPECT_THAT(
      test::message_of<DataError>([&] { EventFile file(folder_ / "file" / "run"); }),
      HasSubstr((folder_ / "file" / "run").string()));
}

}  // namespace
}  // namespace cohort
