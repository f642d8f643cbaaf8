// SPDX-License-Identifier: Apache-2.0
// Signals to and deaths of the agent, the zygote and ranks; several nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "cohort/comm/endpoint.h"
#include "cohort/core/process.h"
#include "program_run.h"

namespace cohort::test {
namespace {

using testing::HasSubstr;

std::string signal_text(int signal) { return std::to_string(signal); }

std::string name_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

pid_t zygote_of(const Program& run) {
  for (pid_t pid : run.processes()) {
    if (name_of(pid) == "cohort-zygote") return pid;
  }
  return -1;
}

pid_t rank_of(const Program& run) {
  for (pid_t pid : run.processes()) {
    if (pid != run.pid() && name_of(pid) != "cohort-zygote") return pid;
  }
  return -1;
}

// Both ranks have said that they are there.
bool both_ready(Program& run) {
  return run.wait_until([&] {
    const size_t first = run.out().find("ready");
    return first != std::string::npos &&
           run.out().find("ready", first + 1) != std::string::npos;
  });
}

class PassedOn : public testing::TestWithParam<int> {};

TEST_P(PassedOn, ReachesTheRanksWhoseOwnCodeIsReturned) {
  Program run(body({"-n", "2"}, {"obey", signal_text(GetParam()), "75"}));
  ASSERT_TRUE(both_ready(run));
  run.signal(GetParam());
  EXPECT_EQ(run.wait(), 75) << run.err();
  EXPECT_TRUE(run.all_gone());
}

INSTANTIATE_TEST_SUITE_P(Signals, PassedOn,
                         testing::Values(SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1,
                                         SIGUSR2));

TEST(HeldBack, ByAProgramIsHeldBackInItsOwnRanksAndFreeInOthers) {
  Program own(body({"-n", "2", "--hold"}, {"held"}));
  EXPECT_EQ(own.wait(), 0) << own.err();
  EXPECT_EQ(own.out(), "held\n[rank 1] held\n");
  Program other(
      Args{launch_tool(), "-n", "1", "--hold", "--", launch_tool(), "--act", "held"});
  EXPECT_EQ(other.wait(), 0) << other.err();
  EXPECT_EQ(other.out(), "free\n");
}

class Stopped : public testing::TestWithParam<int> {};

TEST_P(Stopped, EndsWithTheSignalsCodeWhenRanksDieOfIt) {
  Program run(shell({"-n", "3"}, "echo ready; exec sleep 60"));
  ASSERT_TRUE(both_ready(run));
  run.signal(GetParam());
  EXPECT_EQ(run.wait(), 128 + GetParam()) << run.err();
  EXPECT_THAT(run.err(), HasSubstr("[launch] SIG"));
  EXPECT_TRUE(run.all_gone());
}

INSTANTIATE_TEST_SUITE_P(Signals, Stopped,
                         testing::Values(SIGTERM, SIGINT, SIGHUP, SIGQUIT));

TEST(Grace, IsFollowedByAKill) {
  Program run(shell({"-n", "2", "--grace", "0.2"},
                    "trap '' TERM; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(both_ready(run));
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait(), 128 + SIGTERM) << run.err();
  EXPECT_TRUE(run.all_gone());
}

TEST(Grace, IsCutShortByASecondInterrupt) {
  Program run(shell({"-n", "2", "--grace", "1000"},
                    "trap 'echo heard' INT; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(both_ready(run));
  run.signal(SIGINT);
  ASSERT_TRUE(run.wait_for_output("heard"));
  run.signal(SIGINT);
  EXPECT_EQ(run.wait(), 130) << run.err();
  EXPECT_TRUE(run.all_gone());
}

TEST(Grace, AlsoEndsRanksThatAreStopped) {
  Program run(shell({"-n", "2", "--grace", "0.2"},
                    "echo ready; [ $RANK = 1 ] && kill -STOP $$; exec sleep 60"));
  ASSERT_TRUE(both_ready(run));
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait(), 128 + SIGTERM) << run.err();
  EXPECT_TRUE(run.all_gone());
}

TEST(FrozenRank, IsNamedAndKilled) {
  Program run(shell({"-n", "2", "--stopped-limit", "0.3"},
                    "[ $RANK = 1 ] && kill -STOP $$; exec sleep 60"));
  EXPECT_EQ(run.wait(), 137) << run.err();
  EXPECT_THAT(run.err(), HasSubstr("was stopped by SIGSTOP"));
  EXPECT_THAT(run.err(), HasSubstr("killed by SIGKILL: stopped for 0.3 s"));
  EXPECT_TRUE(run.all_gone());
}

TEST(FrozenZygote, IsWoken) {
  Program run(body({"-n", "2"}, {"obey", signal_text(SIGTERM), "75"}));
  ASSERT_TRUE(both_ready(run));
  ::kill(zygote_of(run), SIGSTOP);
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait(), 75) << run.err();
}

class DeadZygote : public testing::TestWithParam<int> {};

TEST_P(DeadZygote, EndsTheRunAndIsNamed) {
  Program run(shell({"-n", "3"}, "echo ready; sleep 60"));
  ASSERT_TRUE(both_ready(run));
  ASSERT_GT(zygote_of(run), 0);
  ::kill(zygote_of(run), GetParam());
  EXPECT_EQ(run.wait(), 128 + GetParam()) << run.err();
  EXPECT_THAT(run.err(), HasSubstr("the zygote on "));
  EXPECT_TRUE(run.all_gone());
}

INSTANTIATE_TEST_SUITE_P(Signals, DeadZygote,
                         testing::Values(SIGKILL, SIGSEGV, SIGABRT));

class DeadAgent : public testing::TestWithParam<int> {};

TEST_P(DeadAgent, TakesEverythingWithIt) {
  // Also what a rank has started, in a session of its own.
  Program run(
      shell({"-n", "3"}, "setsid sleep 60 & trap '' TERM HUP; echo ready; wait"));
  ASSERT_TRUE(both_ready(run));
  run.signal(GetParam());
  EXPECT_EQ(run.wait(), 128 + GetParam());
  EXPECT_TRUE(run.all_gone());
  EXPECT_THAT(run.err(), HasSubstr("[launch] the agent on "));
}

INSTANTIATE_TEST_SUITE_P(Signals, DeadAgent,
                         testing::Values(SIGKILL, SIGSEGV, SIGABRT));

TEST(DeadAgentAndFrozenZygote, LeaveNothing) {
  Program run(shell({"-n", "2"}, "echo ready; exec sleep 60"));
  ASSERT_TRUE(both_ready(run));
  const pid_t zygote = zygote_of(run);
  run.signal(SIGSTOP);  // so that it does not wake the zygote
  ::kill(zygote, SIGSTOP);
  run.signal(SIGKILL);
  EXPECT_EQ(run.wait(), 137);
  EXPECT_TRUE(run.all_gone());
}

TEST(DeadTerminal, EndsTheRun) {
  Program run(shell({"-n", "2"}, "echo ready; exec sleep 60"), {},
              Program::Streams::kTerminal);
  ASSERT_TRUE(both_ready(run));
  run.hang_up();
  EXPECT_EQ(run.wait(), 128 + SIGHUP);
  EXPECT_TRUE(run.all_gone());
}

TEST(ControlC, StopsTheRun) {
  Program run(shell({"-n", "2"}, "echo ready $COHORT_STDERR_TTY; exec sleep 60"), {},
              Program::Streams::kTerminal);
  ASSERT_TRUE(both_ready(run));
  EXPECT_THAT(run.out(), HasSubstr("ready 1"));
  run.type("\x03");
  EXPECT_EQ(run.wait(), 130) << run.out();
  EXPECT_TRUE(run.all_gone());
}

TEST(ControlZ, StopsRanksToo) {
  Program run(shell({"-n", "2", "--stopped-limit", "0.1"}, "echo ready; exec sleep 60"),
              {}, Program::Streams::kTerminal);
  ASSERT_TRUE(both_ready(run));
  const auto state_of = [](pid_t pid) {
    return process_stat(pid).value_or(ProcessStat()).state;
  };
  const pid_t rank = rank_of(run);
  run.type("\x1a");
  EXPECT_TRUE(run.wait_until([&] { return state_of(run.pid()) == 'T'; }));
  EXPECT_TRUE(run.wait_until([&] { return state_of(rank) == 'T'; }));
  run.signal(SIGCONT);
  EXPECT_TRUE(run.wait_until([&] { return state_of(rank) == 'S'; }));
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait(), 128 + SIGTERM) << run.out();
}

TEST(DeadRank, EndsTheOthers) {
  Program run(body({"-n", "3"}, {"meet", "100000", "1"}));
  ASSERT_TRUE(run.wait_for_output("round 5\n"));
  ::kill(rank_of(run), SIGKILL);
  EXPECT_EQ(run.wait(), 137) << run.err();
  EXPECT_THAT(run.err(), HasSubstr("failed: killed by SIGKILL\n"));
  EXPECT_TRUE(run.all_gone());
}

TEST(SideBySide, RunsDoNotMeet) {
  Program a(body({"-n", "3"}, {"meet", "50", "1"}));
  Program b(body({"-n", "2"}, {"meet", "40", "1"}));
  EXPECT_EQ(a.wait(), 0) << a.err();
  EXPECT_EQ(b.wait(), 0) << b.err();
  EXPECT_THAT(a.out(), HasSubstr("round 49\n"));
  EXPECT_THAT(b.out(), HasSubstr("round 39\n"));
}

// A port nobody uses now.
std::string free_endpoint() {
  return "127.0.0.1:" + std::to_string(Listener("127.0.0.1", 0).port());
}

TEST(TwoNodes, NumberTheirRanksByNodeAlsoWhenUnequal) {
  const std::string rdzv = free_endpoint();
  const std::string script = "echo $GROUP_RANK: $RANK of $WORLD_SIZE at $MASTER_PORT";
  Program a(shell({"-n", "1", "--nnodes", "2", "--rdzv", rdzv}, script));
  Program b(shell({"-n", "2", "--nnodes", "2", "--rdzv", rdzv}, script));
  EXPECT_EQ(a.wait(), 0) << a.err();
  EXPECT_EQ(b.wait(), 0) << b.err();
  const std::string all = a.out() + b.out();
  const std::string tail = " of 3 at " + rdzv.substr(rdzv.find(':') + 1);
  // Whichever came first is node 0.
  const bool a_first = a.out().rfind("0: 0", 0) == 0;
  for (const std::string& line :
       a_first ? Args{"0: 0", "1: 1", "1: 2"} : Args{"0: 0", "0: 1", "1: 2"}) {
    EXPECT_THAT(all, HasSubstr(line + tail));
  }
}

TEST(TwoNodes, MeetInOneStore) {
  const std::string rdzv = free_endpoint();
  const Args args{launch_tool(), "-n",    "1",    "--nnodes", "2", "--rdzv", rdzv, "--",
                  launch_tool(), "--act", "meet", "5",        "1"};
  Program a(args), b(args);
  EXPECT_EQ(a.wait(), 0) << a.err();
  EXPECT_EQ(b.wait(), 0) << b.err();
  EXPECT_THAT(a.out() + b.out(), HasSubstr("round 4\n"));
}

TEST(TwoNodes, RestartWithAnEmptyStore) {
  const std::string rdzv = free_endpoint();
  const Args args{launch_tool(),    "-n",    "1",      "--nnodes", "2",
                  "--max-restarts", "1",     "--rdzv", rdzv,       "--",
                  launch_tool(),    "--act", "fresh",  "1"};
  Program a(args), b(args);
  EXPECT_EQ(a.wait(), 0) << a.err();
  EXPECT_EQ(b.wait(), 0) << b.err();
  EXPECT_THAT(a.err(), HasSubstr("restart 1 of 1"));
}

TEST(TwoNodes, BothReportTheFailureOfOne) {
  const std::string rdzv = free_endpoint();
  const Args flags{"-n", "2", "--nnodes", "2", "--rdzv", rdzv, "--max-restarts", "1"};
  const std::string script =
      "[ $RANK = 3 ] && [ $COHORT_GENERATION = 0 ] && { echo no luck >&2; exit 6; };"
      "[ $RANK = 0 ] && [ $COHORT_GENERATION = 1 ] && exit 8; sleep 60";
  Program a(shell(flags, script)), b(shell(flags, script));
  EXPECT_EQ(a.wait(), 8) << a.err();
  EXPECT_EQ(b.wait(), 8) << b.err();
  for (const Program* run : {&a, &b}) {
    EXPECT_THAT(run->err(), HasSubstr("failed: exit code 6: no luck\n"));
    EXPECT_THAT(run->err(), HasSubstr("failed: exit code 8\n"));
    EXPECT_TRUE(run->all_gone());
  }
}

TEST(TwoNodes, StopTogether) {
  const std::string rdzv = free_endpoint();
  const Args args =
      shell({"-n", "2", "--nnodes", "2", "--rdzv", rdzv}, "echo ready; exec sleep 60");
  Program a(args), b(args);
  ASSERT_TRUE(both_ready(a));
  ASSERT_TRUE(both_ready(b));
  a.signal(SIGTERM);
  EXPECT_EQ(a.wait(), 128 + SIGTERM) << a.err();
  EXPECT_EQ(b.wait(), 128 + SIGTERM) << b.err();
}

TEST(TwoNodes, NoticeTheLossOfAnAgent) {
  const std::string rdzv = free_endpoint();
  const Args args = shell({"-n", "1", "--nnodes", "2", "--rdzv", rdzv},
                          "echo $GROUP_RANK ready; exec sleep 60");
  Program a(args), b(args);
  ASSERT_TRUE(a.wait_for_output("ready"));
  ASSERT_TRUE(b.wait_for_output("ready"));
  const bool a_serves = a.out().find("0 ready") != std::string::npos;
  Program& server = a_serves ? a : b;
  Program& guest = a_serves ? b : a;
  server.signal(SIGKILL);
  EXPECT_EQ(guest.wait(), 4) << guest.err();
  EXPECT_THAT(guest.err(), HasSubstr("the agents' store at " + rdzv + " is lost"));
  EXPECT_TRUE(guest.all_gone());
  EXPECT_TRUE(server.all_gone());
}

TEST(TwoNodes, RefuseToDisagree) {
  const std::string rdzv = free_endpoint();
  Program a(shell({"--nnodes", "2", "--rdzv", rdzv}, "true"));
  Program b(shell({"--nnodes", "2:2", "--max-restarts", "3", "--rdzv", rdzv}, "true"));
  EXPECT_EQ(a.wait(), 2) << a.err();
  EXPECT_EQ(b.wait(), 2) << b.err();
  EXPECT_THAT(a.err(), HasSubstr("agents disagree"));
  EXPECT_THAT(b.err(), HasSubstr("agents disagree"));
}

TEST(TwoNodes, SayWhoDidNotCome) {
  const std::string rdzv = free_endpoint();
  Program run(
      shell({"--nnodes", "2", "--join-timeout", "0.5", "--rdzv", rdzv}, "true"));
  EXPECT_NE(run.wait(), 0);
  EXPECT_THAT(run.err(), HasSubstr("only 1 nodes came to " + rdzv));
}

TEST(NodeRange, StartsWithoutTheMaximumAfterTheLastCall) {
  Program run(shell({"-n", "3", "--nnodes", "1:2", "--rdzv", free_endpoint()},
                    "echo $WORLD_SIZE $GROUP_WORLD_SIZE"));
  EXPECT_EQ(run.wait(), 0) << run.err();
  EXPECT_THAT(run.out(), HasSubstr("3 1\n"));
}

}  // namespace
}  // namespace cohort::test
