// SPDX-License-Identifier: Apache-2.0
// Waits alone make a step right: whichever lanes start their communication as early as
// the list allows, and whichever as late as the waits do, the weights are the same.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "cohort/core/error.h"
#include "cohort/core/testing_folder.h"
#include "cohort/core/testing_long_form.h"
#include "cohort/engine/testing_declared.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using test::DeclaredCase;

// Some lanes late, by the bits of a number: all ranks agree on it.
class LateLanes final : public test::ExecutorWatch {
 public:
  explicit LateLanes(unsigned which) : which_(which) {}
  void begin(const Action&) override {}
  void end(const Action&) override {}
  bool delays(int lane) const override { return which_ >> lane & 1; }

 private:
  unsigned which_;
};

// Every choice of lanes, or, where a pipeline has many, all choices of its groups with
// all of its links.
std::vector<unsigned> choices(const Schedule& schedule) {
  unsigned links = 0;
  std::vector<unsigned> parts;
  for (int lane = 1; lane < schedule.lanes(); ++lane) {
    if (schedule.is_copy(lane)) continue;
    if (schedule.group_of(lane) || schedule.lanes() <= 5)
      parts.push_back(1u << lane);
    else
      links |= 1u << lane;
  }
  if (links) parts.push_back(links);
  std::vector<unsigned> all;
  for (unsigned bits = 0; bits < 1u << parts.size(); ++bits) {
    unsigned lanes = 0;
    for (size_t i = 0; i < parts.size(); ++i)
      if (bits >> i & 1) lanes |= parts[i];
    all.push_back(lanes);
  }
  return all;
}

std::vector<unsigned> choices(const DeclaredCase& c) {
  return choices(test::declared_step(c));
}

class DeferredOfProcesses : public testing::TestWithParam<DeclaredCase> {};
class DeferredOfThreads : public testing::TestWithParam<DeclaredCase> {};

void expect_same_weights(const DeclaredCase& c, Communicator& comm) {
  const uint64_t usual = test::train_declared(c, comm, {.in_turn = false});
  EXPECT_NE(usual, 0);
  EXPECT_EQ(test::train_declared(c, comm), usual) << "one action at a time";
  for (const unsigned late : choices(c)) {
    LateLanes lanes(late);
    EXPECT_EQ(test::train_declared(c, comm, {.watch = &lanes, .in_turn = false}), usual)
        << "lanes " << late;
  }
}

TEST_P(DeferredOfProcesses, LanesLeadToTheSameWeights) {
  const DeclaredCase c = GetParam();
  test::run_ranks({.backend = "shm", .size = c.ranks, .kind = test::Kind::kProcesses},
                  [&](Communicator& comm) { expect_same_weights(c, comm); });
}

TEST_P(DeferredOfThreads, LanesLeadToTheSameWeights) {
  const DeclaredCase c = GetParam();
  test::run_ranks({.backend = "local", .size = c.ranks},
                  [&](Communicator& comm) { expect_same_weights(c, comm); });
}

// Left out: pipelines whose last stage updates a bucket between two backwards, as that
// of a language model does. It waits for the sum of the losses before it sends a
// gradient, and a stage before it, whose lane is late, would wait for the gradient
// before it starts the sum. In the list the sum comes first, and no lane waits for
// another.
std::vector<DeclaredCase> lane_cases() {
  std::vector<DeclaredCase> all = test::declared_cases();
  std::erase_if(all, [](const DeclaredCase& c) {
    return c.language && c.stages > 1 && !c.elastic;
  });
  return all;
}

std::vector<DeclaredCase> cases_of_two_ranks() {
  std::vector<DeclaredCase> all = lane_cases();
  std::erase_if(all, [](const DeclaredCase& c) { return c.ranks != 2; });
  return all;
}

// In the short form every fourth of those that threads try.
std::vector<DeclaredCase> cases_of_processes() {
  std::vector<DeclaredCase> all = lane_cases();
  int two_ranks = 0;
  std::erase_if(all, [&](const DeclaredCase& c) {
    return !test::is_long() && c.ranks == 2 && two_ranks++ % 4 != 0;
  });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Steps, DeferredOfProcesses,
                         testing::ValuesIn(cases_of_processes()),
                         [](const auto& info) {
                           return testing::PrintToString(info.param);
                         });
INSTANTIATE_TEST_SUITE_P(Steps, DeferredOfThreads,
                         testing::ValuesIn(cases_of_two_ranks()), [](const auto& info) {
                           return testing::PrintToString(info.param);
                         });

// A wait that is missing is found when lanes are late: another hash, an error, or a
// process that dies of what is not there. Waits for the compute lane cannot be missed,
// for a host computes in the order of the list; nor can those of a Commit which finds
// its sums used already.
struct MissingWait {
  ActionKind kind, on;  // an action of the first waits for none of the second
  DeclaredCase c;
};

std::ostream& operator<<(std::ostream& out, const MissingWait& wait) {
  return out << name_of(wait.kind) << "_" << name_of(wait.on) << "_" << wait.c;
}

// Behind the checker, which would refuse the step.
void drop_waits(const MissingWait& wait, Schedule& schedule) {
  size_t dropped = 0;
  for (auto& role : schedule.roles)
    for (auto& action : role.actions)
      if (action.kind == wait.kind)
        dropped += std::erase_if(action.waits, [&](int earlier) {
          return role.actions[earlier].kind == wait.on;
        });
  if (dropped == 0) throw BugError("[test] nobody has such a wait");
}

class MissingWaits : public testing::TestWithParam<MissingWait> {};

TEST_P(MissingWaits, AreFoundByLateLanes) {
  const MissingWait& wait = GetParam();
  const test::TempFolder folder;
  const std::string path = folder / "said";
  std::set<int> all;
  for (int r = 0; r < wait.c.ranks; ++r) all.insert(r);
  test::run_ranks(
      {.backend = "shm",
       .size = wait.c.ranks,
       .kind = test::Kind::kProcesses,
       .timeout = std::chrono::seconds(3)},
      [&](Communicator& comm, Store&) {
        const auto say = [&](const char* word) {
          std::ofstream(path, std::ios::app) << word << std::endl;
        };
        const uint64_t usual = test::train_declared(wait.c, comm);
        if (comm.rank() == 0) say("ran");
        const auto alter = [&](Schedule& s) { drop_waits(wait, s); };
        LateLanes lanes(~0u);
        try {
          if (test::train_declared(
                  wait.c, comm, {.watch = &lanes, .in_turn = false, .alter = alter}) ==
              usual)
            say("same");
        } catch (const BugError&) {
          say("bug");
        } catch (const std::exception&) {  // it is found
        }
        ::kill(::getpid(), SIGKILL);
      },
      all);
  std::ifstream file(path);
  std::string said;
  file >> said;
  EXPECT_EQ(said, "ran");
  EXPECT_FALSE(file >> said) << said;
}

constexpr DeclaredCase kTwoStages{.ranks = 4, .stages = 2},
    kTwoStagesVoted{.ranks = 4, .stages = 2, .elastic = true},
    kTwoStagesMirrored{.ranks = 4, .stages = 2, .shard = 1, .elastic = true},
    kFourStagesMirrored{.ranks = 4, .stages = 4, .elastic = true, .clip = true};

const std::vector<MissingWait> kMissingWaits = {
    {ActionKind::kForward, ActionKind::kGather, {.shard = 3}},
    {ActionKind::kRecompute, ActionKind::kGather, {.shard = 3}},
    {ActionKind::kBackward, ActionKind::kGather, {.shard = 3}},
    {ActionKind::kFree, ActionKind::kGather, {.ranks = 3, .shard = 3}},
    {ActionKind::kForward, ActionKind::kRecv, kTwoStages},
    {ActionKind::kBackward, ActionKind::kRecv, kTwoStages},
    {ActionKind::kBackward, ActionKind::kReduceScatter, {.shard = 2}},
    {ActionKind::kBackward, ActionKind::kReduceScatter, {.shard = 2, .exact = true}},
    {ActionKind::kBackward, ActionKind::kReduceUpdate, {.shard = 2, .shares = true}},
    {ActionKind::kReduce,
     ActionKind::kReduceScatter,
     {.ranks = 4, .shard = 1, .replicate = 2}},
    {ActionKind::kNorm, ActionKind::kRecv, kFourStagesMirrored},
    {ActionKind::kVote, ActionKind::kReduce, kTwoStagesVoted},
    {ActionKind::kVote, ActionKind::kMirror, kTwoStagesMirrored},
    {ActionKind::kVote, ActionKind::kRecv, {.stages = 2, .elastic = true}},
    {ActionKind::kUpdate, ActionKind::kReduce, {}},
    {ActionKind::kUpdate, ActionKind::kReduce, kTwoStages},
    {ActionKind::kUpdate, ActionKind::kReduceScatter, {.shard = 1}},
    {ActionKind::kUpdate, ActionKind::kNorm, {.ranks = 4, .stages = 4, .clip = true}},
    {ActionKind::kUpdate, ActionKind::kVote, {.elastic = true}},
    {ActionKind::kUpdate,
     ActionKind::kVote,
     {.shard = 2, .elastic = true, .exact = true}},
    {ActionKind::kCommit, ActionKind::kFoldBuffers, {.statistics = true}},
};
INSTANTIATE_TEST_SUITE_P(Kinds, MissingWaits, testing::ValuesIn(kMissingWaits),
                         [](const auto& info) {
                           return testing::PrintToString(info.param);
                         });

}  // namespace
}  // namespace cohort
