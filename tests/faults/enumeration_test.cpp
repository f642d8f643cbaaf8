// SPDX-License-Identifier: Apache-2.0
// One fault before each action of each rank of a step: killed, frozen, or its next
// message lost. Whatever happens, the next world goes on to the weights of an
// undisturbed run. Who is frozen or lost is found by a deadline, on a clock that moves
// only while all who can wait do. COHORT_LONG=1: all cases; else some of each kind.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "cohort/checkpoint/safetensors.h"
#include "cohort/core/clock.h"
#include "cohort/core/error.h"
#include "cohort/core/fault_point.h"
#include "cohort/elastic/commit.h"
#include "cohort/elastic/state_exchange.h"
#include "cohort/engine/executor.h"
#include "cohort/optim/update_rule.h"
#include "cohort/step/checker.h"
#include "cohort/step/generator.h"
#include "support/ranks.h"
#include "support/small_net.h"

namespace cohort {
namespace {

constexpr int kSlices = 3;
constexpr int64_t kSteps = 3;  // the fault is in the second
constexpr std::chrono::seconds kTimeout(120);

struct Way {
  int ranks = 2;
  int shard = 0;
  const char* recompute = "none";
};

std::ostream& operator<<(std::ostream& out, const Way& way) {
  return out << "n" << way.ranks << "_shard" << way.shard << '_' << way.recompute;
}

Chain make_chain() { return test::make_small_net(); }

Batch slice(int64_t step, int index) { return test::small_slice(step, index, 8); }

Schedule schedule_of(const Way& way) {
  Schedule schedule =
      generate(specs_of(make_chain()), {.dp = way.ranks, .shard = way.shard},
               {.slices = kSlices,
                .bucket_bytes = 10'000,
                .clip = true,
                .elastic = true,
                .recompute = BlockChoice::parse(way.recompute, "test"),
                .exact = true,
                .optimizer_states = 2});
  check(schedule);
  return schedule;
}

// What one rank has, from world to world.
struct Member {
  std::unique_ptr<Chain> chain = std::make_unique<Chain>(make_chain());
  std::unique_ptr<Executor> executor;  // of the world before
  int64_t committed = -1;
};

// A run of several worlds, whose ranks are threads of this process.
class Worlds {
 public:
  Worlds(const Way& way, FaultPlan* faults)
      : way_(way),
        faults_(faults),
        rule_(make_update_rule({.name = "adamw"})),
        members_(way.ranks),
        comms_(way.ranks),
        errors_(way.ranks) {}

  // Trains in a new world until the end, or a fault. Whoever throws InjectedFault is
  // gone, and somebody new takes its place.
  void live(int generation, Clock* clock = nullptr) {
    const LocalOptions options{.timeout = kTimeout,
                               .generation = generation,
                               .clock = clock,
                               .faults = faults_};
    test::run_local_ranks(way_.ranks, options, [&](Communicator& comm) {
      at::set_num_threads(1);
      Member& member = members_[comm.rank()];
      comms_[comm.rank()] = &comm;
      try {
        enter(member, comm);
        train(member);
        const auto weights = member.executor->weights();
        if (comm.rank() == 0) hash_ = weights_hash(weights);
      } catch (const CommError& error) {
        EXPECT_EQ(generation, 0) << error.what();
        errors_[comm.rank()] = error.what();
      } catch (const InjectedFault&) {
        member = Member();
      }
      leave();
    });
  }

  // Of the world that lives.
  Communicator& comm(int rank) { return *comms_[rank]; }

  // Blocks until so many ranks have left their world.
  void wait_until_left(int count) {
    std::unique_lock lock(mutex_);
    const bool gone = change_.wait_for(lock, kTimeout, [&] { return left_ >= count; });
    EXPECT_TRUE(gone) << left_ << " of " << count << " ranks have noticed";
  }
  bool is_whole() {
    const std::lock_guard lock(mutex_);
    return left_ == 0;
  }

  const std::string& hash() const { return hash_; }
  // With which each rank left the first world.
  const std::vector<std::string>& errors() const { return errors_; }

 private:
  void enter(Member& member, Communicator& comm) {
    Stand stand{.committed = member.committed};
    if (member.executor) stand.flight = member.executor->standing();
    const auto stands = exchange_stands(comm, stand);
    const Decision decision = decide(stands, comm.rank());
    auto fresh = std::make_unique<Executor>(
        *member.chain, schedule_of(way_), *rule_, comm,
        ExecutorOptions{.decay = {.weight_decay = 0.01},
                        .clip = 0.5,
                        .takes_over = decision.committed >= 0,
                        .faults = faults_});
    if (decision.committed >= 0) {
      if (decision.finishes) member.executor->finish(decision.skip);
      std::vector<StatePiece> have;
      if (decision.holds) have = member.executor->state(Holding::kHeld);
      EXPECT_EQ(exchange_state(comm, have, fresh->state(Holding::kHeld)), "");
      fresh->refresh();
    }
    member.committed = std::max<int64_t>(decision.committed, 0);
    member.executor = std::move(fresh);
  }

  void train(Member& member) {
    while (member.committed < kSteps) {
      const int64_t step = member.committed;
      member.executor->run({.step = step, .rate = 0.05, .batch = [=](int index) {
                              return slice(step, index);
                            }});
      ++member.committed;
    }
  }

  void leave() {
    const std::lock_guard lock(mutex_);
    ++left_;
    change_.notify_all();
  }

  Way way_;
  FaultPlan* faults_;
  std::unique_ptr<UpdateRule> rule_;
  std::vector<Member> members_;
  std::vector<Communicator*> comms_;
  std::vector<std::string> errors_;
  std::string hash_;
  std::mutex mutex_;
  std::condition_variable change_;
  int left_ = 0;  // ranks that have left their world
};

enum class Kind { kKilled, kFrozen, kLost };
constexpr Kind kKinds[] = {Kind::kKilled, Kind::kFrozen, Kind::kLost};
constexpr const char* kKindNames[] = {"killed", "frozen", "lost"};

struct Case {
  int victim = 0;
  int64_t action = 0;
  Kind kind = Kind::kKilled;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "rank " << c.victim << " is " << kKindNames[static_cast<int>(c.kind)]
             << " before action " << c.action;
}

// Moves the clock whenever so many ranks wait, in steps that none can take for a
// deadline: whoever still has something to do does it in between. The first that gives
// up breaks the group for all, and they need no clock any more.
void keep_time(VirtualClock& clock, Worlds& worlds, int waiting) {
  while (worlds.is_whole())
    if (clock.wait_for_sleepers(waiting, std::chrono::milliseconds(5)))
      clock.advance(kTimeout / 4);
}

// Every rank that is left must name the victim. One whose message was lost may be the
// first to give up.
void expect_noticed(const Worlds& worlds, const Case& c) {
  using testing::HasSubstr;
  const std::string victim = text("rank ", c.victim);
  const bool lost = c.kind == Kind::kLost;
  const auto named = testing::AnyOf(
      HasSubstr(victim + " is missing"), HasSubstr("waits for " + victim),
      HasSubstr(lost ? victim + " waited" : victim + " is missing"));
  for (int rank = 0; rank < static_cast<int>(worlds.errors().size()); ++rank) {
    const std::string& error = worlds.errors()[rank];
    if (rank == c.victim && !lost) {
      EXPECT_EQ(error, "");
    } else if (c.kind == Kind::kKilled) {
      EXPECT_THAT(error, HasSubstr("aborted by " + victim));
    } else {
      EXPECT_THAT(error, testing::AllOf(HasSubstr(" timeout 120 s: "), named));
    }
  }
}

std::string hash_after(const Way& way, const Case& c) {
  SCOPED_TRACE(c);
  FaultPlan faults;
  Worlds worlds(way, &faults);
  VirtualClock clock;
  std::jthread time;
  const auto strike = [&] {
    if (c.kind == Kind::kKilled) {  // and its agent ends the world for all
      worlds.comm(c.victim).abort("the test says so");
      throw InjectedFault("the rank is gone");
    }
    const bool freezes = c.kind == Kind::kFrozen;
    const int waiting = freezes ? way.ranks - 1 : way.ranks;
    time = std::jthread([&, waiting] { keep_time(clock, worlds, waiting); });
    if (freezes) {
      worlds.wait_until_left(way.ranks - 1);
      throw InjectedFault("the rank is gone");
    }
    faults.arm(
        {.name = "comm.message", .rank = c.victim, .action = Fault::Action::kDrop});
  };
  faults.arm({.name = "engine.action",
              .rank = c.victim,
              .index = c.action,
              .count = 2,  // of the second step
              .action = Fault::Action::kCall,
              .call = strike});
  worlds.live(0, &clock);
  EXPECT_EQ(faults.pending(), 0) << "the fault was never reached";
  expect_noticed(worlds, c);
  if (time.joinable()) time.join();
  worlds.live(1);
  return worlds.hash();
}

std::vector<Case> cases_of(const Way& way) {
  const Schedule schedule = schedule_of(way);
  const bool all = std::getenv("COHORT_LONG") != nullptr;
  std::vector<Case> cases;
  int64_t number = way.shard + way.ranks;
  for (int victim = 0; victim < way.ranks; ++victim) {
    const auto& actions = schedule.role_of(victim).actions;
    bool voted = false;
    for (size_t i = 0; i < actions.size(); ++i) {
      voted |= actions[i].kind == ActionKind::kVote;
      for (Kind kind : kKinds)
        if (all || number++ % (voted ? 7 : 29) == 0)
          cases.push_back({victim, static_cast<int64_t>(i), kind});
    }
  }
  return cases;
}

class FaultEnumeration : public testing::TestWithParam<Way> {};

TEST_P(FaultEnumeration, EveryCaseEndsWithTheWeightsOfAnUndisturbedRun) {
  const auto cases = cases_of(GetParam());
  constexpr size_t kAtOnce = 25;  // in one child
  for (size_t first = 0; first < cases.size(); first += kAtOnce)
    test::run_in_child([&] {
      Worlds undisturbed(GetParam(), nullptr);
      undisturbed.live(0);
      ASSERT_EQ(undisturbed.hash().size(), 16u);
      for (size_t i = first; i < std::min(cases.size(), first + kAtOnce); ++i)
        EXPECT_EQ(hash_after(GetParam(), cases[i]), undisturbed.hash()) << cases[i];
    });
  std::fprintf(stderr, "%zu faults\n", cases.size());
  RecordProperty("faults", static_cast<int>(cases.size()));
}

std::vector<Way> every_way() {
  std::vector<Way> ways;
  for (int ranks : {2, 3})
    for (int shard : {0, 1, 2, 3})
      for (const char* recompute : {"none", "all"})
        ways.push_back({ranks, shard, recompute});
  return ways;
}

INSTANTIATE_TEST_SUITE_P(Ways, FaultEnumeration, testing::ValuesIn(every_way()),
                         [](const auto& info) {
                           return testing::PrintToString(info.param);
                         });

}  // namespace
}  // namespace cohort
