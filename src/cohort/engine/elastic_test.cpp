// SPDX-License-Identifier: Apache-2.0
// Steps that are cut off: what each rank then holds, and can finish alone.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <map>

#include "cohort/core/error.h"
#include "cohort/core/fault_point.h"
#include "cohort/engine/executor.h"
#include "cohort/optim/update_rule.h"
#include "cohort/step/checker.h"
#include "cohort/step/generator.h"
#include "support/ranks.h"
#include "support/small_net.h"

namespace cohort {
namespace {

constexpr int kSlices = 4;
constexpr int64_t kSteps = 3;
constexpr uint64_t kSampleKey = 0xfedcba9876543210u;
const SampleSum kAllSamples = test::small_samples(kSampleKey, kSlices);
using Phase = Standing::Phase;

struct Way {
  int ranks = 2;
  int shard = 0;
  bool elastic = true;
  at::ScalarType dtype = at::kFloat;
};

std::ostream& operator<<(std::ostream& out, const Way& way) {
  return out << "n=" << way.ranks << " shard=" << way.shard
             << " elastic=" << way.elastic << ' ' << way.dtype;
}

std::vector<Way> every_way() {
  std::vector<Way> ways;
  for (int ranks : {2, 3})
    for (int shard : {0, 1, 2, 3})
      for (auto dtype : {at::kFloat, at::kBFloat16})
        ways.push_back({ranks, shard, true, dtype});
  return ways;
}

// With running statistics, and a frozen parameter in a bucket of its own.
Chain make_chain() {
  Chain chain = test::make_small_net();
  Tensor frozen = chain.parameters().back().tensor;
  frozen.set_requires_grad(false);
  return chain;
}

// A block whose gradient of one parameter is not finite, in its last element alone.
class SpoiltBlock final : public Block {
 public:
  SpoiltBlock(std::unique_ptr<Block> block, Tensor parameter)
      : block_(std::move(block)), parameter_(std::move(parameter)) {}

  const std::string& name() const override { return block_->name(); }
  std::span<const NamedTensor> parameters() const override {
    return block_->parameters();
  }
  std::span<const NamedTensor> buffers() const override { return block_->buffers(); }

  Values forward(const Values& inputs, Context& context) override {
    context.grads = nullptr;
    Values outputs = block_->forward(inputs, context);
    const Tensor last = parameter_.reshape(-1)[-1];
    outputs[0] = outputs[0] + (last - last.detach()).sqrt();  // its slope is infinite
    return outputs;
  }

 private:
  std::unique_ptr<Block> block_;
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

// One rank of a run.
class Rank {
 public:
  Rank(const Way& way, Communicator& comm, FaultPlan* faults = nullptr,
       Chain chain = make_chain())
      : chain_(std::move(chain)),
        rule_(make_update_rule({.name = "adamw"})),
        executor_(chain_, schedule_of(chain_, way), *rule_, comm,
                  {.decay = {.weight_decay = 0.01},
                   .clip = 0.5,
                   .listed_samples = 2 * kSlices,
                   .faults = faults}) {}

  static Schedule schedule_of(const Chain& chain, const Way& way) {
    Schedule schedule = generate(specs_of(chain), {.dp = way.ranks, .shard = way.shard},
                                 {.slices = kSlices,
                                  .bucket_bytes = 20'000,
                                  .clip = true,
                                  .elastic = way.elastic,
                                  .exact = true,
                                  .precision = {.compute = way.dtype},
                                  .optimizer_states = 2});
    check(schedule, {.elastic = way.elastic});
    return schedule;
  }

  StepResult step(int64_t step, const SampleSum& expected = kAllSamples) {
    return executor_.run(
        {.step = step,
         .rate = 0.05,
         .batch = [=](int index) { return test::small_slice(step, index, 16); },
         .sample_key = kSampleKey,
         .expected = expected});
  }
  Executor& operator*() { return executor_; }
  Executor* operator->() { return &executor_; }

 private:
  Chain chain_;
  std::unique_ptr<UpdateRule> rule_;
  Executor executor_;
};

// Elements of the state by name and place.
using Elements = std::map<std::pair<std::string, int64_t>, float>;

Elements elements(Executor& executor, Holding which) {
  Elements all;
  for (const auto& piece : executor.state(which)) {
    const Tensor flat = piece.data.to(at::kFloat);
    const float* values = flat.const_data_ptr<float>();
    for (int64_t i = 0; i < flat.numel(); ++i)
      all[{piece.tensor.spec.name, piece.tensor.spec.begin + i}] = values[i];
  }
  return all;
}

// Ranks are threads of one process: what they leave here, all can read.
using Shared = std::vector<Elements>;

// What a run without faults owns after each step, by rank.
std::vector<Shared> undisturbed(const Way& way) {
  std::vector<Shared> after(kSteps + 1, Shared(way.ranks));
  test::run_local_ranks(way.ranks, 0, [&](Communicator& comm) {
    Rank rank(way, comm);
    after[0][comm.rank()] = elements(*rank, Holding::kOwned);
    for (int64_t step = 0; step < kSteps; ++step) {
      rank.step(step);
      after[step + 1][comm.rank()] = elements(*rank, Holding::kOwned);
    }
  });
  return after;
}

Elements joined(const Shared& owned) {
  Elements all;
  for (const auto& part : owned) all.insert(part.begin(), part.end());
  return all;
}

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

// What the ranks do when a fault has struck one of them in step 1 is for `after`.
using After = std::function<void(Rank& rank, Communicator& comm)>;

void disturb(const Way& way, Fault fault, const After& after) {
  FaultPlan faults;
  fault.count = 2;  // of the second step
  faults.arm(fault);
  std::barrier all_cut(way.ranks), all_done(way.ranks);
  test::run_local_ranks(way.ranks, 0, [&](Communicator& comm) {
    Rank rank(way, comm, &faults);
    rank.step(0);
    try {
      rank.step(1);
    } catch (const InjectedFault&) {
      comm.abort("the test says so");
    } catch (const CommError& error) {
      comm.abort(error.what());
    }
    all_cut.arrive_and_wait();
    after(rank, comm);
    all_done.arrive_and_wait();
  });
  EXPECT_EQ(faults.pending(), 0);
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
            EXPECT_EQ(rank->standing().phase, Phase::kBefore);
          }
          EXPECT_LE(rank->standing().phase, Phase::kVoted);
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
          ASSERT_GE(rank->standing().phase, Phase::kVoted);
          EXPECT_FALSE(rank->standing().against);
          const StepResult result = rank->finish(false);
          EXPECT_EQ(rank->standing().phase, Phase::kCommitted);
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
        try {
          rank.step(1, test::small_samples(kSampleKey, 1));
          ADD_FAILURE() << "committed";
        } catch (const BugError& error) {
          EXPECT_THAT(error.what(),
                      testing::HasSubstr("step 2: the ranks drew 8 samples"));
        }
        EXPECT_EQ(rank->standing().phase, Phase::kBefore);
        for (const auto& [where, value] : elements(*rank, Holding::kHeld))
          ASSERT_EQ(value, before.at(where)) << where.first;
      });
    }
  });
}

// Whoever finds it makes everybody leave the step, or after its vote is left behind.
TEST(ElasticStep, AGradientThatHasChangedIsNeverCommitted) {
  test::run_in_child([] {
    for (const auto& way : every_way()) {
      const auto states = undisturbed(way);
      const Elements before = joined(states[1]), after = joined(states[2]);
      const Schedule schedule = Rank::schedule_of(make_chain(), way);
      std::atomic<int> noticed = 0;
      for (int64_t action = 0, victim = 0;; action += 2, ++victim) {
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
                  const bool voted = rank->standing().phase >= Phase::kVoted;
                  noticed += rank->standing().phase < Phase::kCommitted;
                  if (!rank->damage().empty()) {
                    EXPECT_TRUE(voted && comm.rank() == victim);
                    return;
                  }
                  if (voted) rank->finish(false);
                  for (const auto& [where, value] : elements(*rank, Holding::kHeld))
                    ASSERT_EQ(value, (voted ? after : before).at(where)) << where.first;
                });
      }
      EXPECT_GT(noticed, way.ranks) << "no flip did any harm";
    }
  });
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
          EXPECT_EQ(rank->standing().phase, Phase::kVoted);
          EXPECT_TRUE(rank->standing().against);
        }
        all_cut.arrive_and_wait();
      });
      EXPECT_EQ(faults.pending(), 0);
    }
  });
}

TEST(ElasticStep, ABadSumIsLeftOutByAll) {
  test::run_in_child([] {
    for (const auto& way : every_way())
      for (const std::string& name : trained_names()) {
        SCOPED_TRACE(testing::Message() << way << ' ' << name);
        test::run_local_ranks(way.ranks, 0, [&](Communicator& comm) {
          Rank rank(way, comm, nullptr, make_spoilt_chain(name));
          EXPECT_TRUE(rank.step(0).skipped);
        });
      }
  });
}

TEST(ElasticStep, AStepThatChangesNothingCanBeFinishedToo) {
  test::run_in_child([] {
    const Way way{.ranks = 2, .shard = 2};
    const Elements before = joined(undisturbed(way)[1]);
    cut_off(way, find(way, ActionKind::kUpdate, false), [&](Rank& rank, Communicator&) {
      if (rank->standing().phase != Phase::kVoted) return;  // it knows better
      EXPECT_TRUE(rank->finish(true).skipped);
      for (const auto& [where, value] : elements(*rank, Holding::kHeld))
        ASSERT_EQ(value, before.at(where)) << where.first;
    });
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
