// SPDX-License-Identifier: Apache-2.0
// Steps that are cut off: what each rank then holds, and can finish alone.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/engine/testing_elastic.h"
#include "support/forwarding_communicator.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using namespace test;  // NOLINT: a test
using Phase = VoteState::Phase;

TEST(ElasticStep, GivesTheWeightsOfAPlainOne) {
  test::run_in_child([] {
    for (const auto& way : every_way()) {
      Way plain = way;
      plain.elastic = false;
      EXPECT_EQ(joined(undisturbed(way)[kSteps]), joined(undisturbed(plain)[kSteps]))
          << way;
    }
  });
}

TEST(ElasticStep, EveryShareIsHeldTwiceToTheBit) {
  test::run_in_child([] {
    for (const auto& way : every_way()) {
      SCOPED_TRACE(testing::Message() << way);
      Shared owned(way.ranks), held(way.ranks);
      test::run_local_ranks(way.ranks, 0, [&](Communicator& comm) {
        Rank rank(way, comm);
        for (int64_t step = 0; step < kSteps; ++step) rank.step(step);
        rank->refresh();  // changes nothing
        owned[comm.rank()] = elements(*rank, Holding::kOwned);
        held[comm.rank()] = elements(*rank, Holding::kHeld);
      });
      const Elements all = joined(owned);
      std::map<std::pair<std::string, int64_t>, int> holders;
      for (const auto& part : held)
        for (const auto& [where, value] : part) {
          ++holders[where];
          ASSERT_EQ(value, all.at(where)) << where.first << ' ' << where.second;
        }
      EXPECT_EQ(holders.size(), all.size());
      for (const auto& [where, count] : holders) ASSERT_GE(count, 2) << where.first;
    }
  });
}

// The last rank leaves before one of its actions.
void cut_off(const Way& way, int64_t action, const After& after) {
  disturb(way, {.name = "engine.action", .rank = way.ranks - 1, .index = action},
          after);
}

int64_t find(const Way& way, ActionKind kind, bool last) {
  const Chain chain = make_chain();
  const Schedule schedule = Rank::schedule_of(chain, way);
  const auto& actions = schedule.role_of(way.ranks - 1).actions;
  int64_t found = kNone;
  for (size_t i = 0; i < actions.size(); ++i)
    if (actions[i].kind == kind && (last || found == kNone))
      found = static_cast<int64_t>(i);
  return found;
}

TEST(ElasticStep, CutOffBeforeItsVoteItLeavesTheStateAsItWas) {
  test::run_in_child([] {
    for (const auto& way : every_way()) {
      const Elements before = joined(undisturbed(way)[1]);
      const int64_t vote = find(way, ActionKind::kVote, true);
      for (int64_t action : {int64_t{0}, find(way, ActionKind::kBackward, false),
                             find(way, ActionKind::kFoldBuffers, false), vote}) {
        SCOPED_TRACE(testing::Message() << way << " action " << action);
        cut_off(way, action, [&](Rank& rank, Communicator& comm) {
          const bool lost = comm.rank() + 1 == comm.size();
          if (lost) {
            EXPECT_EQ(rank->vote_state().phase, Phase::kBefore);
          }
          EXPECT_LE(rank->vote_state().phase, Phase::kVoted);
          for (const auto& [where, value] : elements(*rank, Holding::kHeld))
            ASSERT_EQ(value, before.at(where)) << where.first;
        });
      }
    }
  });
}

TEST(ElasticStep, CutOffBehindItsVoteEachRankFinishesAlone) {
  test::run_in_child([] {
    for (const auto& way : every_way()) {
      const Elements after = joined(undisturbed(way)[2]);
      for (ActionKind kind :
           {ActionKind::kUpdate, ActionKind::kGather, ActionKind::kCommit}) {
        const int64_t action = find(way, kind, true);
        if (action < find(way, ActionKind::kVote, true)) continue;
        SCOPED_TRACE(testing::Message() << way << " action " << action);
        cut_off(way, action, [&](Rank& rank, Communicator&) {
          ASSERT_GE(rank->vote_state().phase, Phase::kVoted);
          EXPECT_FALSE(rank->vote_state().against);
          const StepResult result = rank->finish(false);
          EXPECT_EQ(rank->vote_state().phase, Phase::kCommitted);
          EXPECT_FALSE(result.skipped);
          EXPECT_GT(result.loss, 0);
          EXPECT_EQ(result.drawn, kAllSamples);
          EXPECT_EQ(result.samples.back().back(), 2 * kSlices - 1);
          for (const auto& [where, value] : elements(*rank, Holding::kHeld))
            ASSERT_EQ(value, after.at(where)) << where.first;
        });
      }
    }
  });
}

TEST(ElasticStep, AStepWithOtherSamplesIsVotedOnByNobody) {
  test::run_in_child([] {
    for (const auto& way : every_way()) {
      SCOPED_TRACE(testing::Message() << way);
      const Elements before = joined(undisturbed(way)[1]);
      test::run_local_ranks(way.ranks, 0, [&](Communicator& comm) {
        Rank rank(way, comm);
        rank.step(0);
        EXPECT_THAT(test::message_of<BugError>(
                        [&] { rank.step(1, test::small_samples(kSampleKey, 1)); }),
                    testing::HasSubstr("step 2: the ranks drew 8 samples"));
        EXPECT_EQ(rank->vote_state().phase, Phase::kBefore);
        for (const auto& [where, value] : elements(*rank, Holding::kHeld))
          ASSERT_EQ(value, before.at(where)) << where.first;
      });
    }
  });
}

TEST(ElasticStep, AStepThatChangesNothingCanBeFinishedToo) {
  test::run_in_child([] {
    const Way way{.ranks = 2, .shard = 2};
    const Elements before = joined(undisturbed(way)[1]);
    cut_off(way, find(way, ActionKind::kUpdate, false), [&](Rank& rank, Communicator&) {
      if (rank->vote_state().phase != Phase::kVoted) return;  // it knows better
      EXPECT_TRUE(rank->finish(true).skipped);
      for (const auto& [where, value] : elements(*rank, Holding::kHeld))
        ASSERT_EQ(value, before.at(where)) << where.first;
    });
  });
}

// A communicator whose world another rank has begun to end.
class StoppedWorld final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;

  Tensor stop_word() override { return word; }

  Tensor word = at::zeros({1}, at::kInt);
};

// Its peers may have all that it sent: but it has not voted, and takes the step neither
// for committed nor for skipped.
TEST(ElasticStep, WhoIsStoppedBeforeItsVoteKnowsThatNothingIsDecided) {
  test::run_in_child([] {
    for (const int shard : {0, 3}) {
      const Way way{.ranks = 2, .shard = shard, .resident = true};
      const Elements before = joined(undisturbed(way)[1]);
      test::run_local_ranks(way.ranks, 0, [&](Communicator& inner) {
        StoppedWorld comm(inner);
        Rank rank(way, comm);
        rank.step(0);
        if (comm.rank() == 1) comm.word.fill_(1);
        EXPECT_THROW(rank.step(1), CommError);
        EXPECT_EQ(rank->vote_state().phase,
                  comm.rank() == 1 ? Phase::kBefore : Phase::kVoted);
        for (const auto& [where, value] : elements(*rank, Holding::kHeld))
          ASSERT_EQ(value, before.at(where)) << where.first;
      });
    }
  });
}

TEST(ElasticStep, WhoTakesOverKeepsTheBuffersItHas) {
  test::run_in_child([] {
    const Way way{.ranks = 2, .shard = 3};
    test::run_local_ranks(way.ranks, 0, [&](Communicator& comm) {
      Chain chain = make_chain();
      const auto rule = make_update_rule({.name = "adamw"});
      const auto fill = [&](float value) {
        for (auto& [name, tensor] : chain.buffers()) tensor.fill_(value);
      };
      fill(1);
      Executor first(chain, Rank::schedule_of(chain, way), *rule, comm, {});
      fill(7.0f + comm.rank());
      Executor second(chain, Rank::schedule_of(chain, way), *rule, comm,
                      {.takes_over = true});
      for (const auto& [name, tensor] : chain.buffers())
        EXPECT_EQ(tensor.min().item<float>(), 7.0f + comm.rank()) << name;
    });
  });
}

}  // namespace
}  // namespace cohort
