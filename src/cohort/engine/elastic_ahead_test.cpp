// SPDX-License-Identifier: Apache-2.0
// Elastic steps that begin before the one before them is known, with the host in the
// place of a device: what each rank holds when they are cut off.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <set>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_long_form.h"
#include "cohort/engine/testing_elastic.h"
#include "cohort/step/run_ahead.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using namespace test;  // NOLINT: a test
using Phase = VoteState::Phase;

// Each step begins before the one before it is known. `done` counts those whose result
// is; `told` is called with each.
void run_ahead(Rank& rank, int64_t& done,
               const std::function<void(const StepResult&)>& told) {
  rank.start(0);
  while (done < kSteps) {
    if (done + 1 < kSteps) rank.start(done + 1);
    const StepResult result = rank->result();
    ++done;
    told(result);
  }
}

struct Calm {
  std::vector<Shared> owned;   // by steps done, and rank
  std::vector<double> losses;  // by step
};

Calm calm_run(const Way& way) {
  Calm calm{std::vector<Shared>(kSteps + 1, Shared(way.ranks)), {}};
  run_local_ranks(way.ranks, 0, [&](Communicator& comm) {
    Rank rank(way, comm);
    EXPECT_TRUE(rank->runs_ahead());
    calm.owned[0][comm.rank()] = elements(*rank, Holding::kOwned);
    int64_t done = 0;
    run_ahead(rank, done, [&](const StepResult& result) {
      calm.owned[done][comm.rank()] = elements(*rank, Holding::kOwned);
      if (comm.rank() == 0) calm.losses.push_back(result.loss);
    });
  });
  return calm;
}

// Also in between: what is under way of the next step has changed nothing.
TEST(ElasticAhead, TheStateIsThatOfTheLastStepThatIsKnown) {
  run_in_child([] {
    for (const auto& way : every_resident_way()) {
      SCOPED_TRACE(testing::Message() << way);
      const auto waits = undisturbed(way);
      const auto ahead = calm_run(way).owned;
      for (int64_t step = 0; step <= kSteps; ++step)
        EXPECT_EQ(joined(ahead[step]), joined(waits[step])) << step;
    }
  });
}

// As a new world decides (elastic/commit.h): steps that count, from what ranks say.
int64_t steps_that_count(const std::vector<int64_t>& done,
                         const std::vector<VoteState>& votes) {
  const int64_t most = std::ranges::max(done);
  bool all_voted = true;
  for (size_t r = 0; r < done.size(); ++r) {
    if (done[r] == most && votes[r].phase == Phase::kDecided) return most + 1;
    all_voted &= done[r] == most && votes[r].phase == Phase::kVoted;
  }
  return all_voted ? most + 1 : most;
}

// The last rank leaves before that action, when it comes to it for the `count`th time.
// Everyone then has, or makes, the state of one and the same step.
void cut_off_ahead(const Way& way, const Calm& calm, int64_t action, int count) {
  SCOPED_TRACE(testing::Message()
               << way << " action " << action << " for the " << count << ". time");
  FaultPlan faults;
  faults.arm({.name = "engine.action",
              .rank = way.ranks - 1,
              .index = action,
              .count = count});
  std::vector<int64_t> done(way.ranks, 0);
  std::vector<VoteState> votes(way.ranks);
  std::barrier all_cut(way.ranks), all_stood(way.ranks), all_done(way.ranks);
  run_local_ranks(way.ranks, 0, [&](Communicator& comm) {
    const int self = comm.rank();
    Rank rank(way, comm, &faults);
    try {
      run_ahead(rank, done[self], [](const StepResult&) {});
    } catch (const InjectedFault&) {
      comm.abort("the test says so");
    } catch (const CommError& error) {
      comm.abort(error.what());
    }
    all_cut.arrive_and_wait();
    votes[self] = rank->vote_state();
    all_stood.arrive_and_wait();
    const int64_t target = steps_that_count(done, votes);
    if (done[self] < target) {
      EXPECT_EQ(done[self] + 1, target);
      const StepResult result = rank->finish(false);
      EXPECT_EQ(result.loss, calm.losses[target - 1]);
      EXPECT_EQ(result.drawn, kAllSamples);
      EXPECT_FALSE(result.skipped);
    }
    const Elements expected = joined(calm.owned[target]);
    for (const auto& [where, value] : elements(*rank, Holding::kHeld))
      if (value != expected.at(where)) {
        ADD_FAILURE() << "rank " << self << ' ' << where.first << " after " << target;
        break;
      }
    all_done.arrive_and_wait();
  });
  EXPECT_EQ(faults.pending(), 0);
}

// The first and the last of each kind, and those around the place where a step waits.
std::set<int64_t> telling_actions(const Way& way) {
  const Chain chain = make_chain();
  const Schedule schedule = Rank::schedule_of(chain, way);
  const Role& role = schedule.role_of(way.ranks - 1);
  const auto& actions = role.actions;
  std::set<int64_t> all = {actions_ahead(role) - 1, actions_ahead(role)};
  for (const auto& action : actions) {
    const auto same = [&](const Action& other) { return other.kind == action.kind; };
    all.insert(std::ranges::find_if(actions, same) - actions.begin());
    const auto from_end = std::find_if(actions.rbegin(), actions.rend(), same);
    all.insert(actions.rend() - from_end - 1);
  }
  return all;
}

TEST(ElasticAhead, CutOffAnywhereAllComeToTheStateOfOneStep) {
  // A child for each way: with all of them one could take longer than it may.
  for (const auto& way : every_resident_way())
    run_in_child([&] {
      const Calm calm = calm_run(way);
      // In the short form in one of the two steps.
      for (const int64_t action : telling_actions(way))
        for (const int count : {2, 3})
          if (is_long() || (action + count) % 2 == 0)
            cut_off_ahead(way, calm, action, count);
    });
}

// A step that nobody goes on with is none.
TEST(ElasticAhead, WhoIsAskedHowFarItCameDropsWhatIsAhead) {
  run_in_child([] {
    const Way way{.ranks = 2, .shard = 3, .resident = true};
    const Elements expected = joined(undisturbed(way)[1]);
    run_local_ranks(way.ranks, 0, [&](Communicator& comm) {
      Rank rank(way, comm);
      rank.start(0);
      rank.start(1);
      rank->result();
      EXPECT_EQ(rank->vote_state().phase, Phase::kCommitted);
      for (const auto& [where, value] : elements(*rank, Holding::kHeld))
        ASSERT_EQ(value, expected.at(where)) << where.first;
      EXPECT_THROW(rank->result(), BugError);
    });
  });
}

TEST(ElasticAhead, AThirdStepBeginsWhenTheFirstIsKnown) {
  run_in_child([] {
    run_local_ranks(2, 0, [&](Communicator& comm) {
      Rank rank({.ranks = 2, .resident = true}, comm);
      rank.start(0);
      rank.start(1);
      EXPECT_THAT(test::message_of<BugError>([&] { rank.start(2); }),
                  testing::HasSubstr("step 2 goes on, and nobody"));
    });
  });
}

}  // namespace
}  // namespace cohort
