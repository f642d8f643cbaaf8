// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "cohort/core/error.h"
#include "cohort/core/testing_long_form.h"
#include "cohort/step/declare.h"
#include "cohort/step/generator.h"
#include "cohort/step/memory_plan.h"
#include "cohort/step/testing_mutants.h"
#include "cohort/step/testing_schedule.h"

namespace cohort {
namespace {

using test::bare;
using test::find;
using test::refusal;
using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kKilo = 1000;

// Trained, shared, frozen and missing parameters, and a running statistic.
std::vector<BlockSpec> odd_blocks() {
  const auto parameter = [](const char* name, int64_t numel) {
    return TensorSpec{.name = name, .shape = {numel}, .end = numel};
  };
  return {{.name = "first",
           .parameters = {parameter("first", 3000), parameter("shared", 100)},
           .activation_bytes = 9 * kKilo,
           .output_bytes = 2 * kKilo,
           .scratch_bytes = 500},
          {.name = "plain",
           .keeps_statistics = true,
           .activation_bytes = 4 * kKilo,
           .output_bytes = 1 * kKilo},
          {.name = "last",
           .parameters = {parameter("fixed", 2000), parameter("last", 1000),
                          parameter("shared", 100)},
           .frozen = {true, false, false},
           .activation_bytes = 5 * kKilo,
           .output_bytes = 1 * kKilo}};
}

struct Case {
  Layout layout;
  GeneratorOptions options;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.layout.text() << " slices=" << c.options.slices
             << " recompute=" << c.options.recompute.text()
             << (c.options.clip ? " clip" : "")
             << (c.options.tensor_sums ? " tensor-sums" : "")
             << (c.options.vote ? " vote" : "") << (c.options.elastic ? " elastic" : "")
             << (c.options.offload ? " offload" : "")
             << (c.options.offload_parameters ? " parameters" : "")
             << (c.options.forward_only ? " forward-only" : "")
             << " prefetch=" << c.options.prefetch;
}

BlockChoice recomputed(const char* text) { return BlockChoice::parse(text, "test"); }

std::vector<Case> every_case() {
  std::vector<Case> cases;
  const Layout worlds[] = {{.dp = 1}, {.dp = 2}, {.dp = 3}, {.dp = 4, .replicate = 2}};
  const int slices[] = {2, 3, 5, 6};
  for (int w = 0; w < 4; ++w)
    for (int shard = 0; shard <= 3; ++shard)
      for (int bits = 0; bits < 16; ++bits) {
        Case c{.layout = worlds[w],
               .options = {.slices = slices[w], .bucket_bytes = 1}};
        if (shard == 0) c.layout.replicate = 1;
        c.layout.shard = shard;
        if (bits & 1) c.options.recompute = recomputed(bits & 2 ? "all" : "every=2");
        c.options.clip = bits & 2;
        c.options.tensor_sums = bits % 3 == 1;
        c.options.vote = bits & 4;
        c.options.offload = bits & 8;
        if (c.options.offload) c.options.memory = MemoryIn::kDevice;
        c.options.prefetch = bits % 3;
        cases.push_back(c);
        c.options.elastic = true;
        if (bits < 4) cases.push_back(c);
      }
  for (int dp : {1, 2, 3})
    for (int bits = 0; bits < 8; ++bits)
      cases.push_back({{.dp = dp},
                       {.slices = dp + 1,
                        .bucket_bytes = 1,
                        .clip = (bits & 2) != 0,
                        .vote = (bits & 4) != 0,
                        .recompute = (bits & 1) != 0,
                        .prefetch = bits % 3,
                        .offload_parameters = true,
                        .memory = MemoryIn::kDevice}});
  cases.push_back({{.dp = 1}, {.offload_parameters = true, .forward_only = true}});
  for (int shard : {0, 3})
    cases.push_back({{.dp = 3, .shard = shard}, {.slices = 4, .forward_only = true}});
  return cases;
}

Schedule made(const Case& c) { return generate(odd_blocks(), c.layout, c.options); }

TEST(Checker, AcceptsWhatGeneratorsWrite) {
  for (const auto& c : every_case()) {
    const Schedule schedule = made(c);
    EXPECT_EQ(refusal(schedule), "accepted") << c;
    EXPECT_EQ(refusal(bare(schedule)), "accepted") << c;
    if (c.options.elastic) {
      EXPECT_EQ(refusal(bare(schedule), {.elastic = true}), "accepted") << c;
    }
  }
}

// What it sums is whole without any call, so no call of its own is missed.
TEST(Checker, AcceptsARankThatMeetsItself) {
  for (int shard = 0; shard <= 3; ++shard)
    EXPECT_EQ(refusal(made({{.dp = 1, .shard = shard},
                            {.slices = 2, .vote = true, .meets_alone = true}})),
              "accepted");
}

// Removing or doubling an action is never harmless, also where a file does not say what
// actions read and write. Exchanges may be: those are left for the executor to show.
TEST(Checker, RefusesEveryRemovalAndDoubling) {
  int64_t refused = 0, accepted = 0;
  uint64_t seed = 1000;
  for (const auto& c : every_case()) {
    const MutantOptions options{.most_exchanges = 60, .seed = seed++};
    // In the short form half of the cases, drawn: neighbours differ in one option.
    if (!test::is_long() && std::mt19937(options.seed)() % 2 == 0) continue;
    for_each_mutant(bare(made(c)), options, [&](const Mutant& mutant) {
      const bool accepts = refusal(mutant.schedule) == "accepted";
      Schedule file = mutant.schedule;
      declare_by_kinds(file);
      const bool accepts_file = refusal(file) == "accepted";
      accepted += accepts + accepts_file;
      refused += !accepts + !accepts_file;
      if (mutant.what.find("exchange") != std::string::npos) return;
      EXPECT_FALSE(accepts) << c << ' ' << mutant.what << " seed " << options.seed;
      // Not to recompute a block is right, too, where nobody says that it was meant.
      if (c.options.recompute.text() == "none") {
        EXPECT_FALSE(accepts_file) << c << ' ' << mutant.what;
      }
    });
  }
  RecordProperty("refused", static_cast<int>(refused));
  RecordProperty("accepted", static_cast<int>(accepted));
  EXPECT_GT(refused, 10 * accepted);
}

// Waits are the fewest that keep every order: none can be spared.
TEST(Checker, RefusesEveryDroppedWait) {
  int64_t dropped = 0;
  for (const auto& c : every_case()) {
    Schedule schedule = made(c);
    for (auto& role : schedule.roles)
      for (auto& action : role.actions) {
        const std::vector<int> waits = action.waits;
        for (size_t w = 0; w < waits.size(); ++w) {
          action.waits.erase(action.waits.begin() + static_cast<int64_t>(w));
          EXPECT_NE(refusal(schedule), "accepted") << c << " wait for " << waits[w];
          action.waits = waits;
          ++dropped;
        }
      }
  }
  RecordProperty("dropped", static_cast<int>(dropped));
  EXPECT_GT(dropped, 1000);
}

// Two things that may change places keep every order that data needs.
TEST(Checker, ExchangesItAcceptsKeepEveryOrder) {
  for (int shard = 0; shard <= 3; ++shard) {
    const Case c{{.dp = 2, .shard = shard},
                 {.slices = 3, .bucket_bytes = 1, .clip = true}};
    const auto verdicts = judge_mutants(made(c));
    for (const auto& mutant : verdicts.accepted) {
      for (const auto& role : mutant.schedule.roles) {
        const int norm = find(role, ActionKind::kNorm);
        for (size_t i = 0; i < role.actions.size(); ++i) {
          const ActionKind kind = role.actions[i].kind;
          if (kind == ActionKind::kUpdate) {
            EXPECT_GT(static_cast<int>(i), norm);
          }
          if (kind == ActionKind::kBackward || kind == ActionKind::kReduceScatter) {
            EXPECT_LT(static_cast<int>(i), norm);
          }
        }
      }
    }
  }
}

TEST(Checker, NamesRoleActionAndReason) {
  Schedule schedule = made({{.dp = 3}, {.slices = 4, .bucket_bytes = 1}});
  Role& role = schedule.roles[1];
  const int update = find(role, ActionKind::kUpdate, 0);
  role.actions[update].waits.clear();
  EXPECT_THAT(refusal(schedule),
              AllOf(HasSubstr("role 1 (ranks 2)"), HasSubstr(text("action ", update)),
                    HasSubstr("Update bucket 0"), HasSubstr("does not wait for")));
}

TEST(Checker, ListPositionAloneIsNoOrder) {
  Schedule schedule = made({{.dp = 2, .shard = 3}, {.slices = 2}});
  Role& role = schedule.roles[0];
  role.actions[find(role, ActionKind::kForward)].waits.clear();
  EXPECT_THAT(refusal(schedule),
              HasSubstr("R2: reads Whole 1 v1 and does not wait for action 0 Gather"));
}

TEST(Checker, ElasticNeedsAVote) {
  const Case c{{.dp = 2}, {.slices = 2}};
  EXPECT_THAT(refusal(made(c), {.elastic = true}), HasSubstr("Vote"));
  EXPECT_THAT(
      refusal(made({c.layout, {.slices = 2, .vote = true}}), {.elastic = true}),
      HasSubstr("R9: needs Folded of action 12, for which the Vote does not wait"));
  EXPECT_EQ(
      refusal(made({c.layout, {.slices = 2, .elastic = true}}), {.elastic = true}),
      "accepted");
}

TEST(Checker, KindsWithoutAGeneratorAreRefused) {
  Schedule schedule = made({{.dp = 2}, {.slices = 2}});
  schedule.roles[0].actions[0].kind = ActionKind::kAllToAll;
  EXPECT_THAT(refusal(schedule), HasSubstr("later release"));
  schedule.roles[0].actions[0].kind = ActionKind::kSend;
  EXPECT_THAT(refusal(schedule), HasSubstr("there is no link"));
}

// Takes an action out of its place and puts it at another, with waits renumbered.
void move(Role& role, int from, int to) {
  std::vector<int> order(role.actions.size());
  std::iota(order.begin(), order.end(), 0);
  order.erase(order.begin() + from);
  order.insert(order.begin() + to, from);
  std::vector<int> place(order.size());
  std::vector<Action> actions;
  for (size_t i = 0; i < order.size(); ++i) place[order[i]] = static_cast<int>(i);
  for (int i : order) {
    actions.push_back(role.actions[i]);
    for (int& wait : actions.back().waits) wait = place[wait];
  }
  role.actions = std::move(actions);
}

TEST(Checker, CollectivesInAnotherOrderAreRefused) {
  Schedule schedule =
      made({{.dp = 3}, {.slices = 4, .bucket_bytes = 1, .overlap_updates = false}});
  Role& role = schedule.roles[1];
  move(role, find(role, ActionKind::kReduce, 0), find(role, ActionKind::kReduce, 1));
  EXPECT_THAT(refusal(schedule), AllOf(HasSubstr("role 1 (ranks 2)"),
                                       HasSubstr("in group dp; there, role 0")));
}

TEST(Checker, CollectivesOfOtherSizesAreRefused) {
  Schedule schedule = made({{.dp = 3, .shard = 3}, {.slices = 4}});
  Role& role = schedule.roles[1];
  role.actions[find(role, ActionKind::kReduceScatter, 0)].bytes += 4;
  EXPECT_THAT(refusal(schedule), HasSubstr("bytes"));
}

// Each waits in one group for the other, which waits in the other group.
TEST(Checker, DeadlockIsNamed) {
  std::vector<BlockSpec> blocks(3);
  for (const char* name : {"a", "b", "c"})
    blocks[name[0] - 'a'].parameters = {{.name = name, .shape = {10}, .end = 10}};
  Schedule schedule = generate(blocks, {.dp = 4, .shard = 3, .replicate = 2},
                               {.slices = 6, .prefetch = 0});
  ASSERT_EQ(schedule.roles.size(), 2u);
  for (int r : {0, 1}) {
    Role& role = schedule.roles[r];
    const int loss = find(role, ActionKind::kReduce, kLossBucket);
    int scatter = loss;
    while (role.actions[scatter].kind != ActionKind::kReduceScatter) ++scatter;
    role.actions[scatter].waits.push_back(loss);
    if (r == 1) continue;
    role.actions[scatter].waits = {loss - 1};
    move(role, scatter, loss);
    role.actions[loss + 1].waits.push_back(loss);
  }
  EXPECT_THAT(refusal(schedule),
              AllOf(HasSubstr("waits for ever for action"), HasSubstr("never joins")));
}

TEST(Checker, PeakMemoryIsStateAndWhatIsHeldAtOnce) {
  const auto blocks = odd_blocks();
  const Schedule schedule = generate(blocks, {.dp = 1}, {.slices = 2});
  const RolePeak peak = check(schedule).largest();
  // All activations, when the last forward is done: 9 + 4 + 5 KB.
  EXPECT_EQ(peak.parts.activations, 18 * kKilo);
  EXPECT_EQ(peak.parts.state, kept_bytes(schedule, schedule.roles[0]));
  // 3 trained parameters of 3 + 1 + 1 chunks with gradient and momentum, 1 frozen of 2.
  EXPECT_EQ(peak.parts.state, 4 * kChunk * (3 * 5 + 2));
  const Schedule less = generate(blocks, {.dp = 1}, {.slices = 2, .recompute = true});
  // Outputs of all blocks and what the first block's recompute makes: 2 + 1 + 1 + 5 KB
  // at the last block, 2 + 9 KB and its scratch at the first.
  EXPECT_EQ(check(less).largest().parts.activations, 11 * kKilo);
  // The first block's output alone, and all of the others: 2 + 4 + 5 KB.
  const Schedule some =
      generate(blocks, {.dp = 1}, {.slices = 2, .recompute = recomputed("blocks=0")});
  EXPECT_EQ(check(some).largest().parts.activations, 11 * kKilo);
  // 9 + 1 + 5 KB.
  const Schedule middle =
      generate(blocks, {.dp = 1}, {.slices = 2, .recompute = recomputed("blocks=1")});
  EXPECT_EQ(check(middle).largest().parts.activations, 15 * kKilo);
}

TEST(Checker, ABlockMayBeRecomputedInSomeSlicesAlone) {
  Schedule schedule = generate(odd_blocks(), {.dp = 1},
                               {.slices = 2, .recompute = recomputed("blocks=1")});
  Role& role = schedule.roles[0];
  const int at = find(role, ActionKind::kRecompute);
  ASSERT_EQ(role.actions[at].slice, 0);
  role.actions.erase(role.actions.begin() + at);
  for (auto& action : role.actions)
    for (int& wait : action.waits) wait -= wait > at ? 1 : 0;
  EXPECT_THAT(refusal(schedule), HasSubstr("R2: reads Flight 1 slice 0 v1"));
  declare_by_kinds(schedule);
  EXPECT_EQ(refusal(schedule), "accepted");
}

TEST(Checker, RecomputeHelpsUntilAllBlocksAreRecomputed) {
  auto blocks = odd_blocks();
  for (auto& block : blocks) block.activation_bytes *= 1000;
  for (const char* choice : {"none", "every=2", "all"}) {
    const Schedule schedule =
        generate(blocks, {.dp = 1}, {.slices = 2, .recompute = recomputed(choice)});
    const auto message = refusal(schedule, {.memory_limit = 1});
    EXPECT_EQ(message.find("step.recompute=all") == message.npos,
              choice == std::string("all"))
        << message;
  }
}

TEST(Checker, MemoryLimitIsRefusedWithWhatHelps) {
  const Schedule schedule = made({{.dp = 2}, {.slices = 2}});
  const int64_t peak = check(schedule).largest().parts.total();
  EXPECT_EQ(refusal(schedule, {.memory_limit = peak}), "accepted");
  EXPECT_THAT(
      refusal(schedule, {.memory_limit = peak - 1}),
      AllOf(HasSubstr(std::to_string(peak)), HasSubstr(std::to_string(peak - 1)),
            HasSubstr("higher shard level")));
}

TEST(Checker, MemoryLimitOfOneRankNamesNothingThatNeedsMore) {
  const Schedule schedule = made({{.dp = 1}, {.slices = 2}});
  EXPECT_THAT(refusal(schedule, {.memory_limit = 1}),
              HasSubstr("what helps: more ranks and shard=3, or on a GPU"));
}

TEST(Checker, ABufferMustBeOneOfThePlan) {
  Schedule schedule = made({{.dp = 2, .shard = 2}, {.slices = 2}});
  const auto slots = planned(schedule, Buffer::Holds::kSlot);
  EXPECT_FALSE(slots.empty());
  schedule.buffers.clear();
  EXPECT_THAT(refusal(schedule), HasSubstr("R3: has Leaf 0 slice 0 in buffer 0"));
}

// As large as one may ask for: 43,000 actions at level 3. Ten milliseconds or so.
TEST(Checker, JudgesAThousandRanks) {
  std::vector<BlockSpec> blocks;
  for (int b = 0; b < 96; ++b) {
    const std::string name = text("w", b);
    blocks.push_back(
        {.name = name,
         .parameters = {{.name = name, .shape = {1 << 20}, .end = 1 << 20}},
         .activation_bytes = 1 << 20,
         .output_bytes = 1 << 18});
  }
  for (int shard : {0, 3}) {
    const auto schedule =
        generate(blocks, {.dp = 1024, .shard = shard}, {.slices = 65'536});
    EXPECT_EQ(refusal(schedule), "accepted") << shard;
  }
}

}  // namespace
}  // namespace cohort
