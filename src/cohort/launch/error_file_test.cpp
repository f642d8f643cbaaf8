// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/error_file.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>

#include "cohort/core/error.h"
#include "cohort/launch/process_tree.h"

namespace cohort {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// The agent's way: a file without a name, reached through /proc.
class ErrorFileTest : public testing::Test {
 protected:
  ErrorFileTest() : file_(::memfd_create("error", MFD_CLOEXEC)) {
    const std::string path = text("/proc/", ::getpid(), "/fd/", file_.get());
    ::setenv("TORCHELASTIC_ERROR_FILE", path.c_str(), 1);
  }
  ~ErrorFileTest() override { ::unsetenv("TORCHELASTIC_ERROR_FILE"); }

  UniqueFd file_;
};

TEST_F(ErrorFileTest, ComesBackAsWritten) {
  const int64_t before = process::wall_ns();
  write_error_file("[data.idx] bad magic: 7; legal: 2051");
  const auto report = read_error_file(file_.get());
  ASSERT_TRUE(report);
  EXPECT_EQ(report->message, "[data.idx] bad magic: 7; legal: 2051");
  EXPECT_GE(report->earliest_ns, before);
  EXPECT_LE(report->latest_ns, process::wall_ns());
}

TEST_F(ErrorFileTest, KeepsTheFirstErrorOfAProcess) {
  write_error_file("cause");
  write_error_file("consequence");
  EXPECT_EQ(read_error_file(file_.get())->message, "cause");
}

TEST_F(ErrorFileTest, TakesBytesThatAreNotText) {
  write_error_file("bad \xff\xfe \"quoted\"");
  EXPECT_NE(read_error_file(file_.get())->message.find("\"quoted\""),
            std::string::npos);
}

TEST_F(ErrorFileTest, IsNothingWhileItIsEmpty) {
  EXPECT_FALSE(read_error_file(file_.get()));
}

TEST(ErrorFile, NeedsNoLauncher) {
  ::unsetenv("TORCHELASTIC_ERROR_FILE");
  write_error_file("nobody asked");
}

TEST(ErrorText, ReadsTheObjectThatPytorchWrites) {
  const auto report = parse_error_text(
      R"({"message": {"message": "ValueError: x\ny", "extraInfo":
          {"py_callstack": "...", "timestamp": "1700000000"}}})");
  ASSERT_TRUE(report);
  EXPECT_EQ(report->message, "ValueError: x");
  EXPECT_EQ(report->earliest_ns, 1700000000 * kSecond);
  EXPECT_EQ(report->latest_ns, 1700000001 * kSecond - 1);
}

TEST(ErrorText, ReadsThePlainString) {
  const auto report = parse_error_text(R"({"message": "gone", "timestamp": 12})");
  ASSERT_TRUE(report);
  EXPECT_EQ(report->message, "gone");
  EXPECT_EQ(report->earliest_ns, 12 * kSecond);
}

TEST(ErrorText, RefusesWhatIsNoErrorFile) {
  for (const char* text : {"", "{", "[]", "{\"a\":1}", "{\"message\":3}",
                           "{\"message\":{\"message\":{}}}"}) {
    EXPECT_FALSE(parse_error_text(text)) << text;
  }
}

TEST(FaultEvent, IsOneLineOfJson) {
  EXPECT_EQ(fault_event(1, "exit code 3: \"x\"\n"),
            R"({"event":"fault","rank":1,"cause":"exit code 3: \"x\"\n"})");
}

// Any program may be a rank, and leave anything there.
TEST(ErrorFile, IsReadHoweverDeepItNests) {
  const std::string deep = std::string(300'000, '[') + std::string(300'000, ']');
  const auto report = parse_error_text(
      R"({"message":{"message":"a","extraInfo":{"timestamp":1e300,"x":)" + deep +
      "}}}");
  ASSERT_TRUE(report);
  EXPECT_EQ(report->message, "a");
  EXPECT_EQ(report->earliest_ns, 0);
}

}  // namespace
}  // namespace cohort
