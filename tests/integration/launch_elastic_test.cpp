// SPDX-License-Identifier: Apache-2.0
// Elastic runs from outside: ranks die, freeze and come back, and the count goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <map>
#include <regex>

#include "program_run.h"

namespace cohort::test {
namespace {

using testing::HasSubstr;
using testing::Not;

// The steps of a run that goes on until the test has seen what it wants.
const std::string kForever = "1000000000";
const std::string kPatience = "60000";  // how long a rank waits for its group, in ms

Args elastic(const Args& flags, const Args& act) {
  Args args{launch_tool(), "--elastic", "--json", "--prefix-all", "--grace", "60"};
  args.insert(args.end(), flags.begin(), flags.end());
  args.insert(args.end(), {"--body", "elastic"});
  args.insert(args.end(), act.begin(), act.end());
  return args;
}

// Never this process' own group, which pid 0 would be.
void strike(pid_t pid, int signal) {
  EXPECT_GT(pid, 1);
  if (pid > 1) ::kill(pid, signal);
}

// An elastic run under test.
class ElasticRun {
 public:
  ElasticRun(const Args& flags, const Args& act) : program(elastic(flags, act)) {}

  // rank -> pid of a generation, as far as they have joined it.
  std::map<int, pid_t> world(int generation) const {
    std::map<int, pid_t> found;
    const std::regex line("world " + std::to_string(generation) +
                          " (\\d+)/\\d+ pid (\\d+) from \\d+\n");
    const std::string& out = program.out();
    for (std::sregex_iterator at(out.begin(), out.end(), line), end; at != end; ++at) {
      found[std::stoi((*at)[1])] = std::stoi((*at)[2]);
    }
    return found;
  }

  // Waits until a generation has so many ranks, and returns them; empty: it never had.
  std::map<int, pid_t> wait_for_world(int generation, size_t ranks) {
    program.wait_until([&] { return world(generation).size() == ranks; });
    auto found = world(generation);
    EXPECT_EQ(found.size(), ranks) << program.out() << program.err();
    if (found.size() != ranks) found.clear();
    return found;
  }

  // Waits for a process that says it is there and is in none of these worlds.
  pid_t wait_for_spare(const std::map<int, pid_t>& world) {
    pid_t spare = -1;
    program.wait_until([&] {
      const std::regex line("\\[spare\\] here (\\d+)\n");
      std::smatch match;
      if (std::regex_search(program.out(), match, line)) spare = std::stoi(match[1]);
      return spare > 0;
    });
    for (const auto& [rank, pid] : world) EXPECT_NE(pid, spare);
    return spare;
  }

  // Some steps on, so that the next death is not one of the same step.
  bool wait_for_progress() {
    const int before = count(program.out(), "step ");
    return program.wait_until(
        [&] { return count(program.out(), "step ") >= before + 2; });
  }

  // Ends a run that would go on forever.
  void end() {
    program.signal(SIGTERM);
    EXPECT_EQ(program.wait(), 128 + SIGTERM) << program.err();
    EXPECT_TRUE(program.all_gone());
  }

  Program program;
};

class ElasticAtSize : public testing::TestWithParam<int> {};

TEST_P(ElasticAtSize, RunsToItsEndWithoutAFault) {
  ElasticRun run({"-n", std::to_string(GetParam())}, {"30", "0", kPatience});
  EXPECT_EQ(run.program.wait(), 0) << run.program.err();
  EXPECT_EQ(count(run.program.out(), "at 30\n"), GetParam()) << run.program.out();
  EXPECT_EQ(run.program.err(), "");
  EXPECT_TRUE(run.program.all_gone());
}

TEST_P(ElasticAtSize, EveryRankCanBeKilledInTurn) {
  const int n = GetParam();
  ElasticRun run({"-n", std::to_string(n), "--max-restarts", "100"},
                 {kForever, "1", kPatience});
  auto world = run.wait_for_world(0, n);
  for (int victim = 0; victim < n && !world.empty(); ++victim) {
    ASSERT_TRUE(run.wait_for_progress()) << run.program.out();
    strike(world[victim], SIGKILL);
    const auto next = run.wait_for_world(victim + 1, n);
    ASSERT_FALSE(next.empty());
    for (const auto& [rank, pid] : next) {
      EXPECT_EQ(pid == world[rank], rank != victim) << "survivors stay, rank " << rank;
    }
    const std::string fault =
        "\"rank\":" + std::to_string(victim) + ",\"cause\":\"killed by SIGKILL\"";
    EXPECT_THAT(run.program.out(), HasSubstr(fault));
    EXPECT_THAT(run.program.err(), HasSubstr("(pid " + std::to_string(world[victim]) +
                                             ") failed: killed by SIGKILL\n"));
    world = next;
  }
  run.end();
}

TEST_P(ElasticAtSize, AllRanksCanBeKilledAtOnce) {
  const int n = GetParam();
  ElasticRun run({"-n", std::to_string(n), "--max-restarts", "100"},
                 {kForever, "1", kPatience});
  const auto world = run.wait_for_world(0, n);
  ASSERT_TRUE(run.wait_for_progress());
  for (const auto& [rank, pid] : world) strike(pid, SIGKILL);
  // How many generations that takes depends on when the deaths are seen.
  ASSERT_TRUE(run.wait_for_progress()) << run.program.out() << run.program.err();
  // The count comes from memory that outlived them all.
  EXPECT_THAT(run.program.out(), Not(testing::ContainsRegex("world [1-9].* from 0\n")));
  run.end();
}

INSTANTIATE_TEST_SUITE_P(Sizes, ElasticAtSize, testing::Values(1, 2, 3));

TEST(Elastic, TwoRanksCanBeKilledAtOnce) {
  ElasticRun run({"-n", "3", "--max-restarts", "100"}, {kForever, "1", kPatience});
  auto world = run.wait_for_world(0, 3);
  ASSERT_TRUE(run.wait_for_progress());
  strike(world[0], SIGKILL);
  strike(world[2], SIGKILL);
  ASSERT_TRUE(run.wait_for_progress()) << run.program.out() << run.program.err();
  EXPECT_EQ(count(run.program.err(), "failed: killed by SIGKILL"), 2);
  run.end();
}

TEST(Elastic, ASpareThatWasThereBeforeTakesThePlace) {
  ElasticRun run({"-n", "2", "--max-restarts", "100"}, {kForever, "1", kPatience});
  auto world = run.wait_for_world(0, 2);
  const pid_t spare = run.wait_for_spare(world);
  strike(world[1], SIGKILL);
  EXPECT_EQ(run.wait_for_world(1, 2)[1], spare);
  run.end();
}

TEST(Elastic, DoesWithoutSpares) {
  ElasticRun run({"-n", "2", "--spares", "0", "--max-restarts", "100"},
                 {kForever, "1", kPatience});
  auto world = run.wait_for_world(0, 2);
  ASSERT_TRUE(run.wait_for_progress());
  strike(world[0], SIGKILL);
  run.wait_for_world(1, 2);
  EXPECT_THAT(run.program.out(), Not(HasSubstr("[spare]")));
  run.end();
}

TEST(Elastic, ARankThatEndsByItselfIsReplaced) {
  ElasticRun run({"-n", "3", "--max-restarts", "100"},
                 {"200", "1", kPatience, "exit:1:50"});
  EXPECT_EQ(run.program.wait(), 0) << run.program.err();
  EXPECT_THAT(run.program.err(), HasSubstr("failed: exit code 3"));
  EXPECT_EQ(count(run.program.out(), "at 200\n"), 3) << run.program.out();
  EXPECT_TRUE(run.program.all_gone());
}

TEST(Elastic, ADeathBeforeTheRunIsDoneIsRecoveredFrom) {
  for (const std::string victim : {"0", "1"}) {
    ElasticRun run({"-n", "3", "--max-restarts", "100"},
                   {"50", "1", kPatience, "last:" + victim + ":0"});
    EXPECT_EQ(run.program.wait(), 0) << run.program.err();
    EXPECT_EQ(count(run.program.out(), "end 0 at 50\n"), 1) << run.program.out();
  }
}

// The run was done when rank 0 said so, or it says so in another world.
TEST(Elastic, ADeathAfterTheLastStepMakesNobodySayTwiceThatItWas) {
  ElasticRun run({"-n", "3", "--max-restarts", "100"},
                 {"50", "1", kPatience, "late:2:0"});
  EXPECT_EQ(run.program.wait(), 0) << run.program.err();
  EXPECT_EQ(count(run.program.out(), "end 0 at 50\n"), 1) << run.program.out();
  EXPECT_THAT(run.program.err(), HasSubstr("failed: killed by SIGKILL"));
}

TEST(Elastic, ADeathDuringARecoveryOpensTheNextGeneration) {
  ElasticRun run({"-n", "3", "--max-restarts", "100"},
                 {"300", "1", kPatience, "rejoin:2:0"});
  auto world = run.wait_for_world(0, 3);
  ASSERT_TRUE(run.wait_for_progress());
  strike(world[1], SIGKILL);
  EXPECT_EQ(run.program.wait(), 0) << run.program.out() << run.program.err();
  EXPECT_EQ(run.world(2).size(), 3u) << run.program.out();
  EXPECT_EQ(count(run.program.out(), "at 300\n"), 3);
}

TEST(Elastic, AFrozenRankIsReplacedAfterTheDetectionTime) {
  ElasticRun run({"-n", "2", "--detect", "300", "--max-restarts", "100"},
                 {kForever, "1", kPatience});
  auto world = run.wait_for_world(0, 2);
  ASSERT_TRUE(run.wait_for_progress());
  strike(world[1], SIGSTOP);
  const auto next = run.wait_for_world(1, 2);
  ASSERT_FALSE(next.empty());
  EXPECT_EQ(next.at(0), world[0]);
  EXPECT_NE(next.at(1), world[1]);
  EXPECT_THAT(run.program.out(), HasSubstr("stopped for 0.3 s, so it was killed"));
  run.end();
}

TEST(Elastic, ARankThatWakesInTimeGoesOn) {
  ElasticRun run({"-n", "2", "--detect", "100000", "--max-restarts", "100"},
                 {kForever, "1", kPatience});
  auto world = run.wait_for_world(0, 2);
  ASSERT_TRUE(run.wait_for_progress());
  strike(world[1], SIGSTOP);
  ASSERT_TRUE(run.program.wait_until([&] {
    return run.program.err().find("was stopped by SIGSTOP") != std::string::npos;
  }));
  strike(world[1], SIGCONT);
  ASSERT_TRUE(run.wait_for_progress()) << run.program.err();
  EXPECT_TRUE(run.world(1).empty());
  run.end();
}

// Neither dead nor stopped: only its peers can tell.
TEST(Elastic, ARankThatHangsIsNamedAndReplaced) {
  ElasticRun run({"-n", "3", "--detect", "1000", "--max-restarts", "100"},
                 {"100", "1", "3000", "hang:1:50"});
  EXPECT_EQ(run.program.wait(), 0) << run.program.err();
  EXPECT_THAT(run.program.err(), testing::ContainsRegex("rank 1 on .* kept the others "
                                                        "waiting for 1 s"));
  EXPECT_EQ(count(run.program.out(), "at 100\n"), 3) << run.program.out();
}

// The others wait for it, and do not know that it has given up on them.
TEST(Elastic, ARankThatLosesItsGroupTakesTheOthersAlong) {
  ElasticRun run({"-n", "3", "--detect", "60000", "--max-restarts", "100"},
                 {"100", "1", kPatience, "leave:1:50"});
  EXPECT_EQ(run.program.wait(), 0) << run.program.err();
  EXPECT_EQ(run.world(0), run.world(1));  // nobody was killed for it
  EXPECT_THAT(run.program.err(), HasSubstr("all ranks lost one another: rank 1: "));
}

TEST(Elastic, ARankThatDiesAtTheSameStepEachTimeEndsTheRun) {
  ElasticRun run({"-n", "2", "--max-restarts", "100"},
                 {kForever, "1", kPatience, "always:1:50"});
  EXPECT_EQ(run.program.wait(), 128 + SIGKILL);
  EXPECT_THAT(run.program.err(),
              HasSubstr("no recovery of rank 1: failed for the third "
                        "time after step 5"));
  EXPECT_EQ(count(run.program.out(), "\"event\":\"fault\""), 3) << run.program.out();
  EXPECT_TRUE(run.program.all_gone());
}

TEST(Elastic, ASpentBudgetEndsTheRunWithTheCause) {
  ElasticRun run({"-n", "2", "--max-restarts", "1"}, {kForever, "1", kPatience});
  for (int generation : {0, 1}) {
    auto world = run.wait_for_world(generation, 2);
    ASSERT_TRUE(run.wait_for_progress());
    strike(world[1], SIGKILL);
  }
  EXPECT_EQ(run.program.wait(), 128 + SIGKILL) << run.program.err();
  EXPECT_THAT(run.program.err(), HasSubstr("all 1 restarts are spent"));
  EXPECT_TRUE(run.program.all_gone());
}

TEST(Elastic, AFailureOfEveryStartIsNotRepeated) {
  ElasticRun run({"-n", "2", "--max-restarts", "100"},
                 {kForever, "1", kPatience, "exit:0:0"});
  EXPECT_EQ(run.program.wait(), 3);
  EXPECT_EQ(count(run.program.err(), "failed: exit code 3"), 1) << run.program.err();
  EXPECT_TRUE(run.program.all_gone());
}

TEST(Elastic, NothingIsReplacedOnceTheRunIsBeingStopped) {
  ElasticRun run({"-n", "2", "--max-restarts", "100"}, {kForever, "1", kPatience});
  run.wait_for_world(0, 2);
  run.end();
  EXPECT_TRUE(run.world(1).empty());
  EXPECT_THAT(run.program.out(), Not(HasSubstr("fault")));
}

TEST(Elastic, ARankThatDiesOfTheRequestFreesThoseWhoWaitForIt) {
  ElasticRun run({"-n", "2"}, {kForever, "1", kPatience, "absent:1:0"});
  ASSERT_TRUE(run.program.wait_until([&] {
    return count(run.program.out(), "joins 0") && count(run.program.out(), "joins 1");
  }));
  run.program.signal(SIGTERM);
  EXPECT_EQ(run.program.wait(), 128 + SIGTERM);
  EXPECT_THAT(run.program.err(), HasSubstr("this world is over"));
  EXPECT_TRUE(run.program.all_gone());
}

TEST(Elastic, NothingIsLeftWhenTheAgentIsKilled) {
  ElasticRun run({"-n", "2", "--max-restarts", "100"}, {kForever, "1", kPatience});
  run.wait_for_spare(run.wait_for_world(0, 2));
  run.program.signal(SIGKILL);
  EXPECT_EQ(run.program.wait(), 128 + SIGKILL);
  EXPECT_TRUE(run.program.all_gone());
}

TEST(Elastic, AKilledSpareIsReplacedAndHarmsNobody) {
  ElasticRun run({"-n", "2", "--max-restarts", "100"}, {kForever, "1", kPatience});
  const auto world = run.wait_for_world(0, 2);
  const pid_t spare = run.wait_for_spare(world);
  strike(spare, SIGKILL);
  ASSERT_TRUE(run.program.wait_until(
      [&] { return count(run.program.out(), "[spare] here ") == 2; }));
  EXPECT_THAT(run.program.err(), HasSubstr("spare on "));
  EXPECT_TRUE(run.wait_for_progress());
  EXPECT_TRUE(run.world(1).empty());
  run.end();
}

// The other command, and what it says.
struct Answer {
  int code;
  std::string out, err;
};

Answer resize(pid_t pid, int ranks) {
  Program program(
      {launch_tool(), "--resize", std::to_string(pid), std::to_string(ranks)});
  const int code = program.wait();
  return {code, program.out(), program.err()};
}

TEST(Resize, GrowsAndShrinksARun) {
  ElasticRun run({"-n", "2", "--max-restarts", "100"}, {kForever, "1", kPatience});
  const auto first = run.wait_for_world(0, 2);
  ASSERT_TRUE(run.wait_for_progress());
  EXPECT_EQ(resize(run.program.pid(), 4).out, "from 2 to 4 ranks, in generation 1\n");
  const auto second = run.wait_for_world(1, 4);
  ASSERT_TRUE(run.wait_for_progress());
  EXPECT_EQ(resize(run.program.pid(), 1).code, 0);
  const auto third = run.wait_for_world(4, 1);  // one leaves at a time
  ASSERT_TRUE(run.wait_for_progress());
  for (const auto& world : {second, third}) EXPECT_EQ(world.at(0), first.at(0));
  EXPECT_THAT(run.program.out(), Not(HasSubstr("fault")));
  run.end();
}

TEST(Resize, SaysInOneLineWhyItCannotBe) {
  ElasticRun run({"-n", "2", "--max-ranks", "3"}, {kForever, "1", kPatience});
  run.wait_for_world(0, 2);
  const pid_t pid = run.program.pid();
  const struct {
    pid_t pid;
    int ranks;
    std::string why;
  } cases[] = {{pid, 4, "[resize] 4 ranks; legal for this run: 1 to 3"},
               {pid, 0, "[resize] 0 ranks; legal: 1 or more"},
               {::getpid(), 2, "[resize] no run has pid"}};
  for (const auto& wrong : cases) {
    const Answer answer = resize(wrong.pid, wrong.ranks);
    EXPECT_EQ(answer.code, 2);
    EXPECT_THAT(answer.err, HasSubstr(wrong.why));
    EXPECT_EQ(count(answer.err, "\n"), 1) << answer.err;
  }
  EXPECT_EQ(resize(pid, 2).out, "the run has 2 ranks already\n");
  run.end();
}

TEST(Resize, RefusesARunThatIsNotElastic) {
  Program fixed({launch_tool(), "-n", "1", "--", "sh", "-c", "echo ready; sleep 60"});
  ASSERT_TRUE(fixed.wait_for_output("ready"));
  const Answer answer = resize(fixed.pid(), 2);
  EXPECT_EQ(answer.code, 2);
  EXPECT_THAT(answer.err, HasSubstr("is not elastic"));
}

}  // namespace
}  // namespace cohort::test
