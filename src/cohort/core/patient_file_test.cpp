// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/patient_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/file.h"

namespace cohort {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

// A limit on the size of files stands for a full disk: both cut a write short.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit small{bytes, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  }
  ~FullDisk() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

class PatientFileTest : public testing::Test {
 protected:
  PatientFileTest() {
    char name[] = "/tmp/cohort_patient_XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~PatientFileTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  PatientFile open(const std::string& name, Backlog* backlog) const {
    const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
    return {UniqueFd(::open(path(name).c_str(), flags, 0666)), path(name), backlog};
  }

  std::string folder_;
  std::vector<std::string> told_;
  Backlog backlog_{[this](const std::string& line) { told_.push_back(line); }, 16};
};

TEST_F(PatientFileTest, WhatHasNoRoomIsWrittenLaterInOrder) {
  PatientFile a = open("a", &backlog_), b = open("b", &backlog_);
  {
    const FullDisk full(4);
    for (const char* bytes : {"one ", "two ", "three "}) {
      a.append(bytes);
      b.append(bytes);
    }
    EXPECT_EQ(read_file(path("a")), "one ");
    ASSERT_THAT(told_, SizeIs(1));
    EXPECT_THAT(told_[0], HasSubstr("cannot write " + path("a") + ": File too large"));
    EXPECT_THAT(backlog_.trouble(), HasSubstr(path("a") + " and 1 more"));
  }
  a.append("four");
  EXPECT_THAT(told_, SizeIs(1)) << "b still waits";
  b.append("four");
  EXPECT_EQ(read_file(path("a")), "one two three four");
  EXPECT_EQ(read_file(path("b")), "one two three four");
  ASSERT_THAT(told_, SizeIs(2));
  EXPECT_THAT(told_[1], HasSubstr("nothing is lost"));
  EXPECT_EQ(backlog_.trouble(), "");
}

TEST_F(PatientFileTest, BeyondTheLimitRecordsAreLostAndItIsSaid) {
  PatientFile file = open("a", &backlog_);
  int kept = 0;
  {
    const FullDisk full(0);
    for (; file.has_room(); ++kept) file.append("1234567890");
    EXPECT_FALSE(file.has_room());
    EXPECT_EQ(kept, 2);
    ASSERT_THAT(told_, SizeIs(2));
    EXPECT_THAT(told_[1], HasSubstr("records are lost from now on"));
  }
  EXPECT_TRUE(file.has_room());
  EXPECT_EQ(read_file(path("a")), "12345678901234567890");
  ASSERT_THAT(told_, SizeIs(3));
  EXPECT_THAT(told_[2], HasSubstr("2 records are lost"));
}

TEST_F(PatientFileTest, OtherTroubleAndNoBacklogThrow) {
  PatientFile closed(UniqueFd(::open("/dev/null", O_RDONLY)), "closed", &backlog_);
  EXPECT_THROW(closed.append("x"), DataError);
  PatientFile file(UniqueFd(::open("/dev/full", O_WRONLY)), "full", nullptr);
  EXPECT_THROW(file.append("x"), DataError);
  EXPECT_THAT(told_, SizeIs(0));
}

}  // namespace
}  // namespace cohort
