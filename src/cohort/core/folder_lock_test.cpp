// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/folder_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <filesystem>
#include <functional>

#include "cohort/core/error.h"

namespace cohort {
namespace {

using testing::HasSubstr;

class FolderLockTest : public testing::Test {
 protected:
  FolderLockTest() {
    char name[] = "/tmp/cohort_lock_XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~FolderLockTest() override { std::filesystem::remove_all(folder_); }

  // What is said to the process that comes now; empty: nothing, it has the lock.
  std::string refusal(std::chrono::milliseconds patience = std::chrono::seconds(60)) {
    try {
      const FolderLock lock(folder_, patience);
      return "";
    } catch (const ConfigError& error) {
      return error.what();
    }
  }

  std::string folder_;
};

// A process that has the lock, and does something with it before it waits for its end.
class Holding {
 public:
  Holding(const std::string& folder, const std::function<void()>& then) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const FolderLock lock(folder);
      then();
      EXPECT_EQ(::write(ready[1], "x", 1), 1);
      for (;;) ::pause();
    }
    char byte;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Holding() { end(); }

  pid_t pid() const { return pid_; }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
};

TEST_F(FolderLockTest, IsFreeAgainWhenItsHolderIsGone) {
  { const FolderLock lock(folder_); }
  EXPECT_EQ(refusal(), "");
}

TEST_F(FolderLockTest, ASecondRunIsRefusedWithFolderAndPid) {
  Holding first(folder_, [] {});
  EXPECT_THAT(refusal(), HasSubstr(folder_ + " is written to by the run of pid " +
                                   std::to_string(first.pid()) + " on "));
  first.end();
  EXPECT_EQ(refusal(), "");
}

TEST_F(FolderLockTest, WhatAKilledHolderForkedIsWaitedFor) {
  int link[2];
  ASSERT_EQ(::pipe(link), 0);
  Holding first(folder_, [&] {
    if (::fork() != 0) return;
    ::close(link[1]);
    char byte;
    [[maybe_unused]] const ssize_t n = ::read(link[0], &byte, 1);  // to its end
    ::_exit(0);
  });
  first.end();
  EXPECT_THAT(refusal(std::chrono::milliseconds(1)), HasSubstr("have not ended"));
  ::close(link[1]);
  EXPECT_EQ(refusal(), "");
  ::close(link[0]);
}

TEST_F(FolderLockTest, AFolderThatCannotBeWrittenIsNamed) {
  folder_ += "/none";
  EXPECT_THAT(refusal(), HasSubstr("/none/run.lock: cannot be written: No such file"));
  folder_ = folder_.substr(0, folder_.size() - 5);
}

}  // namespace
}  // namespace cohort
