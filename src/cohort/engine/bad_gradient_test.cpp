// SPDX-License-Identifier: Apache-2.0
// Gradients that are no numbers, or have changed by themselves: nobody commits them.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>

#include "cohort/core/error.h"
#include "cohort/core/testing_long_form.h"
#include "cohort/engine/testing_elastic.h"
#include "cohort/nn/wrapped_block.h"
#include "support/ranks.h"

namespace cohort {
namespace {

using namespace test;  // NOLINT: a test
using Phase = VoteState::Phase;

// A block whose gradient of one parameter is not finite, in its last element alone.
class SpoiltBlock final : public WrappedBlock {
 public:
  SpoiltBlock(std::unique_ptr<Block> block, Tensor parameter)
      : WrappedBlock(std::move(block)), parameter_(std::move(parameter)) {}

  Values forward(const Values& inputs, Context& context) override {
    context.grads = nullptr;
    Values outputs = WrappedBlock::forward(inputs, context);
    const Tensor last = parameter_.reshape(-1)[-1];
    outputs[0] = outputs[0] + (last - last.detach()).sqrt();  // its slope is infinite
    return outputs;
  }

 private:
  Tensor parameter_;
};

Chain make_spoilt_chain(const std::string& name) {
  Chain chain = make_chain();
  for (auto& block : chain.blocks)
    for (const auto& parameter : block->parameters())
      if (parameter.name == name) {
        block = std::make_unique<SpoiltBlock>(std::move(block), parameter.tensor);
        break;
      }
  return chain;
}

std::vector<std::string> trained_names() {
  std::vector<std::string> names;
  for (const auto& parameter : make_chain().parameters())
    if (parameter.tensor.requires_grad()) names.push_back(parameter.name);
  return names;
}

// In the short form, ways with numbers of another type take turns with the places of a
// fault: each shard level meets all of them.
int64_t turns() { return test::is_long() ? 1 : 2; }
int64_t turn_of(const Way& way) {
  return (way.shard + (way.dtype == at::kBFloat16 ? 1 : 0)) % turns();
}

// The rank that finds it makes all others leave the step, or after its vote is left
// behind.
TEST(ElasticStep, AGradientThatHasChangedIsNeverCommitted) {
  for (const auto& way : every_way()) {
    if (way.resident) continue;  // nobody looks for flipped bits there
    test::run_in_child([&] {     // one for each: all would take longer than one may
      const auto states = undisturbed(way);
      const Elements before = joined(states[1]), after = joined(states[2]);
      const Schedule schedule = Rank::schedule_of(make_chain(), way);
      std::atomic<int> noticed = 0;
      for (int64_t action = 2 * turn_of(way), victim = 0;;
           action += 2 * turns(), ++victim) {
        victim %= way.ranks;
        const auto& role = schedule.role_of(static_cast<int>(victim));
        if (action >= std::ssize(role.actions)) break;
        SCOPED_TRACE(testing::Message() << way << " action " << action);
        disturb(way,
                {.name = "engine.gradient",
                 .rank = static_cast<int>(victim),
                 .index = action,
                 .action = Fault::Action::kFlip},
                [&](Rank& rank, Communicator& comm) {
                  const bool voted = rank->vote_state().phase >= Phase::kVoted;
                  noticed += rank->vote_state().phase < Phase::kCommitted;
                  if (!rank->damage().empty()) {
                    EXPECT_TRUE(voted && comm.rank() == victim);
                    return;
                  }
                  if (voted) rank->finish(false);
                  for (const auto& [where, value] : elements(*rank, Holding::kHeld))
                    ASSERT_EQ(value, (voted ? after : before).at(where)) << where.first;
                });
      }
      EXPECT_GT(noticed, test::is_long() ? way.ranks : 0) << "no flip did any harm";
    });
  }
}

// At level 0 each rank looks at a part of the sums alone, and the last one is gone.
TEST(ElasticStep, CutOffInItsVoteEachRankKnowsOfABadSum) {
  test::run_in_child([] {
    const Way way;
    for (const std::string& name : trained_names()) {
      SCOPED_TRACE(name);
      FaultPlan faults;
      faults.arm({.name = "engine.vote", .rank = way.ranks - 1});
      std::barrier all_cut(way.ranks);
      test::run_local_ranks(way.ranks, 0, [&](Communicator& comm) {
        Rank rank(way, comm, &faults, make_spoilt_chain(name));
        try {
          rank.step(0);
        } catch (const InjectedFault&) {
          comm.abort("the test says so");
        } catch (const CommError&) {
          EXPECT_EQ(rank->vote_state().phase, Phase::kVoted);
          EXPECT_TRUE(rank->vote_state().against);
        }
        all_cut.arrive_and_wait();
      });
      EXPECT_EQ(faults.pending(), 0);
    }
  });
}

TEST(ElasticStep, ABadSumIsLeftOutByAll) {
  test::run_in_child([] {
    const auto names = trained_names();
    for (const auto& way : every_way())
      for (size_t i = turn_of(way); i < names.size(); i += turns()) {
        const std::string& name = names[i];
        SCOPED_TRACE(testing::Message() << way << ' ' << name);
        test::run_local_ranks(way.ranks, 0, [&](Communicator& comm) {
          Rank rank(way, comm, nullptr, make_spoilt_chain(name));
          EXPECT_TRUE(rank.step(0).skipped);
        });
      }
  });
}

}  // namespace
}  // namespace cohort
