// SPDX-License-Identifier: Apache-2.0
// `cohort launch` from outside: what a user sees, and what is left afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <regex>
#include <thread>

#include "cohort/core/testing_folder.h"
#include "program_run.h"

namespace cohort::test {
namespace {

using testing::HasSubstr;

class LaunchAtSize : public testing::TestWithParam<int> {};

TEST_P(LaunchAtSize, GivesEveryRankItsPlace) {
  const int n = GetParam();
  Program run(
      shell({"-n", std::to_string(n), "--prefix-all"},
            "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK"));
  EXPECT_EQ(run.wait(), 0) << run.err();
  for (int r = 0; r < n; ++r) {
    const std::string rank = std::to_string(r);
    const std::string place = rank + "/" + std::to_string(n);
    const std::string prefix = "[rank " + rank + "] ";
    EXPECT_THAT(run.out(), HasSubstr(prefix + place + " " + place + " 0\n"));
  }
  EXPECT_EQ(count(run.out(), "\n"), n);
  EXPECT_TRUE(run.all_gone());
}

TEST_P(LaunchAtSize, LetsForkedRanksMeetInTheStore) {
  Program run(body({"-n", std::to_string(GetParam())}, {"meet", "3", "0"}));
  EXPECT_EQ(run.wait(), 0) << run.err();
  EXPECT_EQ(run.out(), "round 0\nround 1\nround 2\n");
}

TEST_P(LaunchAtSize, LetsProgramsMeetInTheStore) {
  Program run({launch_tool(), "-n", std::to_string(GetParam()), "--", launch_tool(),
               "--act", "meet", "2", "0"});
  EXPECT_EQ(run.wait(), 0) << run.err();
  EXPECT_EQ(run.out(), "round 0\nround 1\n");
}

// A rank alone has nobody to work with.
TEST_P(LaunchAtSize, SaysInOneLineThatNoRankCameToTheStore) {
  const int n = GetParam();
  Program alone(shell({"-n", std::to_string(n)}, "true"));
  EXPECT_EQ(alone.wait(), 0);
  const std::string line =
      "[launch] all " + std::to_string(n) +
      " ranks of sh worked alone: none came to the run's store; to work together call "
      "cohort::Session::from_env(), or init_process_group() of PyTorch\n";
  EXPECT_EQ(alone.err(), n > 1 ? line : "");
  Program together({launch_tool(), "-n", std::to_string(n), "--", launch_tool(),
                    "--act", "meet", "1", "0"});
  EXPECT_EQ(together.wait(), 0);
  EXPECT_EQ(together.err(), "");
}

TEST(Launch, OfRanksThatFailOrAreStoppedSaysNothingOfTheStore) {
  Program failed(shell({"-n", "2"}, "exit 5"));
  EXPECT_EQ(failed.wait(), 5);
  EXPECT_EQ(count(failed.err(), "store"), 0) << failed.err();
  Program stopped(
      shell({"-n", "2"}, "trap 'exit 0' TERM; echo ready; sleep 60 & wait"));
  ASSERT_TRUE(stopped.wait_until([&] { return count(stopped.out(), "ready") == 2; }));
  stopped.signal(SIGTERM);
  EXPECT_EQ(stopped.wait(), 0) << stopped.err();
  EXPECT_EQ(count(stopped.err(), "store"), 0) << stopped.err();
}

INSTANTIATE_TEST_SUITE_P(Sizes, LaunchAtSize, testing::Values(1, 2, 4));

TEST(Launch, NamesTheFirstFailureAndItsOwnLine) {
  Program run(shell({"-n", "3", "--json"},
                    "if [ $RANK = 1 ]; then echo it broke >&2; exit 3; fi; sleep 60"));
  EXPECT_EQ(run.wait(), 3);
  const std::regex line(
      "\\[launch\\] rank 1 on \\S+ \\(pid \\d+\\) failed: exit code 3: it broke\n");
  EXPECT_TRUE(std::regex_search(run.err(), line)) << run.err();
  EXPECT_THAT(
      run.out(),
      HasSubstr(R"({"event":"fault","rank":1,"cause":"exit code 3: it broke"})"));
  EXPECT_TRUE(run.all_gone());
}

TEST(Launch, PrefersTheErrorFileToTheLastLine) {
  Program run(body({"-n", "3"}, {"error", "2", "[data] the reason"}));
  EXPECT_EQ(run.wait(), 3);
  EXPECT_THAT(run.err(), HasSubstr("failed: exit code 3: [data] the reason\n"));
}

TEST(Launch, FindsTheEarlierErrorOfARankThatDiesLater) {
  // Rank 1 reports its error, then takes its time; rank 0 fails in consequence.
  const TempFolder folder;
  Program run(shell({"-n", "2", "--grace", "10"},
                    "if [ $RANK = 1 ]; then trap 'exit 7' TERM;"
                    " echo '{\"message\":\"cause\",\"timestamp\":1000}'"
                    " > $TORCHELASTIC_ERROR_FILE; : > $WROTE; while :; do sleep 0.01;"
                    " done; fi; until [ -e $WROTE ]; do sleep 0.01; done;"
                    " echo consequence >&2; exit 4"),
              {"WROTE=" + folder.path() + "/wrote"});
  EXPECT_EQ(run.wait(), 7) << run.err();
  EXPECT_THAT(run.err(), HasSubstr("[launch] rank 1 on "));
  EXPECT_THAT(run.err(), HasSubstr(": cause\n"));
}

TEST(Launch, NamesTheSignalThatKilledARank) {
  Program run(shell({"-n", "2"}, "if [ $RANK = 1 ]; then kill -SEGV $$; fi; sleep 60"));
  EXPECT_EQ(run.wait(), 128 + SIGSEGV);
  EXPECT_THAT(run.err(), HasSubstr("failed: killed by SIGSEGV"));
  EXPECT_TRUE(run.all_gone());
}

TEST(Launch, SaysWhichProgramIsMissing) {
  Program run({launch_tool(), "-n", "2", "--", "/no/such/program"});
  EXPECT_EQ(run.wait(), 127);
  EXPECT_THAT(run.err(), HasSubstr("exit code 127: cannot execute '/no/such/program': "
                                   "No such file or directory"));
}

TEST(Launch, LetsARankFinishBeforeTheOthers) {
  Program run(shell({"-n", "2"}, "if [ $RANK = 1 ]; then sleep 0.3; echo late; fi"));
  EXPECT_EQ(run.wait(), 0) << run.err();
  EXPECT_EQ(run.out(), "[rank 1] late\n");
}

TEST(Launch, RestartsAllRanksInANewGeneration) {
  Program run(shell({"-n", "2", "--max-restarts", "2"},
                    "echo $COHORT_GENERATION.$TORCHELASTIC_RESTART_COUNT;"
                    "[ $COHORT_GENERATION = 2 ] && exit 0;"
                    "[ $RANK = 1 ] && exit 9; sleep 60"));
  EXPECT_EQ(run.wait(), 0) << run.err();
  // Rank 0 may be ended before it has said anything.
  EXPECT_THAT(run.out(), HasSubstr("[rank 1] 0.0\n"));
  EXPECT_THAT(run.out(), HasSubstr("[rank 1] 1.1\n"));
  EXPECT_EQ(count(run.out(), "2.2\n"), 2) << run.out();
  EXPECT_EQ(count(run.err(), "failed: exit code 9"), 2);
}

TEST(Launch, GivesEveryGenerationAnEmptyStore) {
  Program run(body({"-n", "3", "--max-restarts", "2"}, {"fresh", "2"}));
  EXPECT_EQ(run.wait(), 0) << run.err();
  EXPECT_EQ(count(run.err(), "failed: exit code 7"), 2) << run.err();
}

TEST(Launch, GivesUpWhenTheRestartsAreSpent) {
  Program run(shell({"-n", "1", "--max-restarts", "2"}, "echo try; exit 9"));
  EXPECT_EQ(run.wait(), 9);
  EXPECT_EQ(count(run.out(), "try\n"), 3);
}

TEST(Launch, ExportsWhatTheUserSetAndKeepsThreads) {
  Program run(shell({"-n", "2"}, "echo $OMP_NUM_THREADS $MINE"),
              {"OMP_NUM_THREADS=7", "MINE=yes"});
  EXPECT_EQ(run.wait(), 0);
  EXPECT_EQ(count(run.out(), "7 yes\n"), 2) << run.out();
}

TEST(Launch, WritesALogForEachRank) {
  const test::TempFolder folder;
  const std::string logs = folder / "a/b";
  Program run(
      shell({"-n", "2", "--log-dir", logs}, "echo out $RANK; echo err $RANK >&2"));
  EXPECT_EQ(run.wait(), 0) << run.err();
  for (const char* rank : {"0", "1"}) {
    for (const char* stream : {"out", "err"}) {
      std::ifstream file(logs + "/rank_" + rank + ".std" + stream + ".log");
      std::string line;
      std::getline(file, line);
      EXPECT_EQ(line, std::string(stream) + " " + rank);
    }
  }
}

TEST(Launch, SurvivesAReaderThatLeaves) {
  // head closes the pipe after a line; the ranks still run to their end.
  Program run({"sh", "-c",
               "{ " + launch_tool() +
                   " -n 2 -- sh -c 'seq 100000; echo end >&2'; echo code $? >&2; }"
                   " | head -n 1"});
  EXPECT_EQ(run.wait(), 0);
  EXPECT_THAT(run.err(), HasSubstr("code 0\n"));
  EXPECT_THAT(run.err(), HasSubstr("[rank 1] end\n"));
}

TEST(Launch, LosesNoOutputOfASlowReader) {
  Program run(
      {"sh", "-c", launch_tool() + " -n 1 -- seq 300000 | { sleep 0.5; tail -n 1; }"});
  EXPECT_EQ(run.wait(), 0);
  EXPECT_EQ(run.out(), "300000\n");
}

TEST(Launch, DoesNotWaitForAChildThatHoldsTheStreams) {
  // setsid takes the child out of the rank's group; it is ended all the same.
  Program run(shell({"-n", "1"}, "setsid sleep 60 & echo done"));
  EXPECT_EQ(run.wait(), 0) << run.err();
  EXPECT_EQ(run.out(), "done\n");
  EXPECT_TRUE(run.all_gone());
}

// One that never answers, and one that hangs up on everybody.
TEST(Launch, SaysThatAStrangerHasTheMeetingPort) {
  for (const bool answers : {false, true}) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    ASSERT_EQ(::bind(listener, generic, size), 0);
    ASSERT_EQ(::listen(listener, 64), 0);
    ASSERT_EQ(::getsockname(listener, generic, &size), 0);
    std::thread stranger([&] {
      for (int guest; answers && (guest = ::accept(listener, nullptr, nullptr)) >= 0;) {
        ::close(guest);
      }
    });
    Program run(shell({"-n", "1", "--nnodes", "2", "--rdzv",
                       "127.0.0.1:" + std::to_string(ntohs(address.sin_port))},
                      "true"));
    EXPECT_EQ(run.wait(), 2);
    EXPECT_THAT(run.err(), HasSubstr("is in use, and not by an agent"));
    EXPECT_EQ(count(run.err(), "\n"), 1) << run.err();
    ::shutdown(listener, SHUT_RDWR);
    stranger.join();
    ::close(listener);
  }
}

TEST(Launch, RefusesOptionsThatMakeNoSense) {
  for (const Args& flags : {Args{"-n", "0"}, Args{"-n", "x"}, Args{"--nnodes", "2"},
                            Args{"--nnodes", "3:2", "--rdzv", "127.0.0.1:1"},
                            Args{"--rdzv", "nowhere"}, Args{"--grace", "-1"},
                            Args{"--log-dir", "/proc/none"}, Args{"-n", "1000000"}}) {
    Program run(shell(flags, "true"));
    EXPECT_EQ(run.wait(), 2) << flags[0] << " " << flags[1];
    EXPECT_THAT(run.err(), HasSubstr("[launch"));
    EXPECT_EQ(count(run.err(), "\n"), 1) << run.err();
  }
}

}  // namespace
}  // namespace cohort::test
