// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/process.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace cohort {
namespace {

TEST(HostName, IsThatOfTheKernel) {
  utsname system{};
  ASSERT_EQ(::uname(&system), 0);
  EXPECT_EQ(host_name(), system.nodename);
}

// A name of the kernel's, while it lives.
class ProgramName {
 public:
  explicit ProgramName(const char* name) {
    ::prctl(PR_GET_NAME, before_.data());
    ::prctl(PR_SET_NAME, name);
  }
  ~ProgramName() { ::prctl(PR_SET_NAME, before_.data()); }

 private:
  std::array<char, 16> before_{};
};

TEST(ProcessStat, IsReadBehindANameOfBlanksAndParentheses) {
  const auto usual = process_stat(0);
  ASSERT_TRUE(usual);
  EXPECT_EQ(usual->parent, ::getppid());
  EXPECT_GT(usual->start_ticks, 0);
  const ProgramName odd(") Z 1 (a b) c");
  for (pid_t pid : {0, ::getpid()}) {
    const auto stat = process_stat(pid);
    ASSERT_TRUE(stat);
    EXPECT_NE(stat->state, 'Z');
    EXPECT_EQ(stat->parent, usual->parent);
    EXPECT_EQ(stat->start_ticks, usual->start_ticks);
  }
}

TEST(ProcessStat, TellsWhoHasEndedFromWhoIsGone) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(0);
  siginfo_t end{};
  ASSERT_EQ(::waitid(P_PID, child, &end, WEXITED | WNOWAIT), 0);
  const auto ended = process_stat(child);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->state, 'Z');
  EXPECT_EQ(ended->parent, ::getpid());
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(process_stat(child));
}

}  // namespace
}  // namespace cohort
