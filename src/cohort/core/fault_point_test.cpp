// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/fault_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cohort/core/testing_error.h"

namespace cohort {
namespace {

using testing::HasSubstr;

TEST(FaultPlan, UnarmedDoesNothing) {
  FaultPlan plan;
  for (int i = 0; i < 100; ++i) plan.reach("a", 0, i);
  EXPECT_EQ(plan.pending(), 0);
}

TEST(FaultPlan, FiresAtItsPassOnItsRankAndOnlyOnce) {
  FaultPlan plan;
  int calls = 0;
  plan.arm(
      {.name = "a", .rank = 2, .count = 3, .action = Fault::Action::kCall, .call = [&] {
         ++calls;
       }});
  for (int pass = 1; pass <= 5; ++pass) {
    plan.reach("a", 0);
    plan.reach("b", 2);
    EXPECT_EQ(calls, pass > 3 ? 1 : 0);
    plan.reach("a", 2);
    EXPECT_EQ(calls, pass >= 3 ? 1 : 0);
  }
  EXPECT_EQ(plan.pending(), 0);
}

TEST(FaultPlan, IndexPicksTheAction) {
  FaultPlan plan("engine.before_action[7]@*=throw");
  for (int i = 0; i < 7; ++i) plan.reach("engine.before_action", 1, i);
  EXPECT_EQ(plan.pending(), 1);
  EXPECT_THROW(plan.reach("engine.before_action", 1, 7), InjectedFault);
  EXPECT_EQ(plan.pending(), 0);
}

TEST(FaultPlan, AFlipIsAskedOfWhoeverPasses) {
  FaultPlan plan("a@1:2=flip");
  EXPECT_EQ(plan.reach("a", 1), FaultPlan::Ask::kNothing);
  EXPECT_EQ(plan.reach("a", 0), FaultPlan::Ask::kNothing);
  EXPECT_EQ(plan.reach("a", 1), FaultPlan::Ask::kFlip);
  EXPECT_EQ(plan.reach("a", 1), FaultPlan::Ask::kNothing);
}

TEST(FaultPlan, ADropIsAskedOfWhoeverPasses) {
  FaultPlan plan;
  plan.arm({.name = "a", .count = 2, .action = Fault::Action::kDrop});
  EXPECT_EQ(plan.reach("a", 1), FaultPlan::Ask::kNothing);
  EXPECT_EQ(plan.reach("a", 1), FaultPlan::Ask::kDrop);
  EXPECT_EQ(plan.reach("a", 1), FaultPlan::Ask::kNothing);
}

TEST(FaultPlan, SpecArmsSeveral) {
  FaultPlan plan("a@1:2=throw; b@*=throw;");
  plan.reach("a", 1);
  EXPECT_THROW(plan.reach("b", 5), InjectedFault);
  EXPECT_THROW(plan.reach("a", 1), InjectedFault);
  plan.reach("a", 1);
}

TEST(FaultPlan, ACallMayArmTheNext) {
  FaultPlan plan;
  plan.arm({.name = "a", .action = Fault::Action::kCall, .call = [&] {
              plan.arm({.name = "a"});
            }});
  plan.reach("a", 0);
  EXPECT_THROW(plan.reach("a", 0), InjectedFault);
}

TEST(FaultPlan, BadSpecsAreRefused) {
  for (auto bad :
       {"a", "a@1", "a=kill", "@1=kill", "a@1=explode", "a@x=kill", "a@-1=kill",
        "a@1:0=kill", "a@1:=kill", "a[x]@1=kill", "a]@1=kill", "[3]@1=kill"}) {
    EXPECT_THROW(FaultPlan{std::string_view(bad)}, ConfigError) << bad;
  }
  EXPECT_THAT(test::message_of<ConfigError>([&] { FaultPlan plan("a@1=explode"); }),
              HasSubstr("unknown action 'explode'; legal: NAME[INDEX]"));
}

// Runs `body` in a child and returns what waitpid says first.
template <typename Body>
int status_of_child(const Body& body, pid_t* child = nullptr) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    body();
    ::_exit(0);
  }
  if (child) *child = pid;
  int status = -1;
  EXPECT_EQ(::waitpid(pid, &status, WUNTRACED), pid);
  return status;
}

TEST(FaultPlan, KillsARealProcessFromTheEnvironment) {
  const int status = status_of_child([] {
    ::setenv("COHORT_FAULT", "a@0:2=kill", 1);
    FaultPlan plan = FaultPlan::from_env();
    plan.reach("a", 0);
    plan.reach("a", 0);
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
}

TEST(FaultPlan, FreezesARealProcess) {
  pid_t child = 0;
  const int status =
      status_of_child([] { FaultPlan("a@*=freeze").reach("a", 0); }, &child);
  ASSERT_TRUE(WIFSTOPPED(status)) << status;
  ::kill(child, SIGCONT);
  int end = -1;
  ASSERT_EQ(::waitpid(child, &end, 0), child);
  EXPECT_TRUE(WIFEXITED(end) && WEXITSTATUS(end) == 0) << end;
}

// Before it strikes: a process that is killed tells nothing any more.
TEST(FaultPlan, AStrikeIsNotedInTheFileThatTheEnvironmentNames) {
  const auto file =
      std::filesystem::temp_directory_path() / text("cohort_strikes_", ::getpid());
  status_of_child([&] {
    ::setenv("COHORT_FAULT_LOG", file.c_str(), 1);
    FaultPlan plan("a[4]@1=flip;b@*:2=slow3;a@1:3=kill;never@0=throw");
    plan.reach("a", 1, 4);
    for (int pass = 0; pass < 3; ++pass) plan.reach("b", 2);
    for (int pass = 0; pass < 3; ++pass) plan.reach("a", 1, 5);
  });
  std::ifstream in(file);
  const std::string lines{std::istreambuf_iterator<char>(in), {}};
  std::filesystem::remove(file);
  EXPECT_EQ(lines, "a[4]@1=flip\nb[-1]@2=slow3\na[5]@1=kill\n");
}

TEST(FaultPlan, StrikesAsOftenAsItMayInAllProcessesTogether) {
  const auto path =
      std::filesystem::temp_directory_path() / text("cohort_struck_", ::getpid());
  ::setenv("COHORT_FAULT_LOG", path.c_str(), 1);
  int struck = 0;
  for (int process = 0; process < 5; ++process) {
    FaultPlan plan("place@1:2=flip*3");
    EXPECT_EQ(plan.reach("place", 1), FaultPlan::Ask::kNothing);
    struck += plan.reach("place", 1) == FaultPlan::Ask::kFlip;
  }
  ::unsetenv("COHORT_FAULT_LOG");
  std::filesystem::remove(path);
  EXPECT_EQ(struck, 3);
}

TEST(FaultPlan, WithoutTheVariableNothingIsArmed) {
  ::unsetenv("COHORT_FAULT");
  EXPECT_EQ(FaultPlan::from_env().pending(), 0);
}

}  // namespace
}  // namespace cohort
