// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/step/action_costs.h"
#include "cohort/step/checker.h"
#include "cohort/step/cost_fit.h"
#include "cohort/step/generator.h"
#include "cohort/step/memory_plan.h"

namespace cohort {
namespace {

// Each block has a bucket of 8192 bytes.
std::vector<BlockSpec> two_blocks() {
  std::vector<BlockSpec> blocks(2);
  for (int b = 0; b < 2; ++b)
    blocks[b] = {.name = text("b", b),
                 .parameters = {{.name = text("w", b), .shape = {2048}, .end = 2048}},
                 .activation_bytes = 1000,
                 .output_bytes = 100,
                 .scratch_bytes = 10};
  return blocks;
}

// Forward 1 s, backward 2 s, update of a bucket 0.5 s, its reduction 1.5 s.
CostTable round_costs(bool hidden = true) {
  CostTable costs{.samples = 4};
  const ComputeCost forward{.fixed = 0.2, .per_sample = 0.2},
      backward{.per_sample = 0.5};
  costs.blocks.assign(2, {forward, backward, forward});
  costs.update = {.bytes_per_second = 8192 / 0.5};
  costs.links["*"] = {.bytes_per_second = 8192 / 1.5, .hidden = hidden};
  return costs;
}

ActionTime time_of(const Schedule& schedule, const Simulation& simulation, int role,
                   ActionKind kind, int bucket) {
  const auto& actions = schedule.roles[role].actions;
  for (size_t i = 0; i < actions.size(); ++i)
    if (actions[i].kind == kind && actions[i].buckets == std::vector{bucket})
      return simulation.times[role][i];
  ADD_FAILURE() << name_of(kind);
  return {};
}

TEST(Simulator, OneRankComputesOneThingAfterAnother) {
  const Schedule schedule =
      generate(two_blocks(), {.dp = 1}, {.slices = 2, .bucket_bytes = 1});
  const Simulation simulation = simulate(schedule, round_costs());
  EXPECT_DOUBLE_EQ(simulation.step, 2 * (1 + 1 + 2 + 2) + 2 * 0.5);
  EXPECT_DOUBLE_EQ(simulation.roles[0].compute, simulation.step);
  EXPECT_EQ(simulation.roles[0].communication, 0);
}

// Loss at 2 s costs 48 / 8192 * 1.5 s. Then: backward 1 until 4; reduction 0 from 4
// to 5.5 beside backward 0 until 6; reduction 1 from 6 to 7.5; update 0 from 6 to 6.5;
// update 1 from 7.5 to 8.
TEST(Simulator, CommunicationRunsBesideComputation) {
  const Schedule schedule =
      generate(two_blocks(), {.dp = 2}, {.slices = 2, .bucket_bytes = 1});
  const Simulation simulation = simulate(schedule, round_costs());
  const auto at = [&](ActionKind kind, int bucket) {
    return time_of(schedule, simulation, 0, kind, bucket);
  };
  EXPECT_EQ(at(ActionKind::kReduce, 0), (ActionTime{4, 5.5}));
  EXPECT_EQ(at(ActionKind::kReduce, 1), (ActionTime{6, 7.5}));
  EXPECT_EQ(at(ActionKind::kUpdate, 0), (ActionTime{6, 6.5}));
  EXPECT_EQ(at(ActionKind::kUpdate, 1), (ActionTime{7.5, 8}));
  EXPECT_DOUBLE_EQ(simulation.step, 8);
  const double loss = 48.0 / 8192 * 1.5;
  EXPECT_DOUBLE_EQ(simulation.roles[0].compute, 7);
  EXPECT_DOUBLE_EQ(simulation.roles[0].communication, 3 + loss);
  EXPECT_DOUBLE_EQ(simulation.roles[0].hidden, 2 + loss);
}

// A state of 8192 bytes is read and written over a bus that takes 2 s for so much.
TEST(Simulator, UpdatesOfStateOnTheHostTakeTheTimeOfTheBus) {
  CostTable costs = round_costs();
  costs.copy = {.bytes_per_second = 8192 / 2.0};
  const auto update = [&](const GeneratorOptions& options) {
    const Schedule schedule = cohort::generate(two_blocks(), {.dp = 1}, options);
    const auto time =
        time_of(schedule, simulate(schedule, costs), 0, ActionKind::kUpdate, 0);
    return time.end - time.begin;
  };
  GeneratorOptions options{.bucket_bytes = 1, .memory = MemoryIn::kDevice};
  EXPECT_DOUBLE_EQ(update(options), 0.5);
  options.offload = true;
  EXPECT_DOUBLE_EQ(update(options), 2);
  costs.update = {.bytes_per_second = 8192 / 3.0};
  EXPECT_DOUBLE_EQ(update(options), 3);  // the bus is not what it waits for
}

// Two ranks bring half of 8192 bytes each to the device before they exchange them.
TEST(Simulator, SharesOnTheHostComeOverTheBusFirst) {
  CostTable costs = round_costs();
  costs.copy = {.bytes_per_second = 8192 / 2.0};
  const auto gather = [&](int ranks, const GeneratorOptions& options) {
    const Schedule schedule =
        cohort::generate(two_blocks(), {.dp = ranks, .shard = 3}, options);
    const auto time =
        time_of(schedule, simulate(schedule, costs), 0, ActionKind::kGather, 0);
    return time.end - time.begin;
  };
  GeneratorOptions options{.slices = 2, .memory = MemoryIn::kDevice};
  EXPECT_DOUBLE_EQ(gather(2, options), 1.5 / 2);
  options.offload_parameters = true;
  EXPECT_DOUBLE_EQ(gather(2, options), 1 + 1.5 / 2);
  EXPECT_DOUBLE_EQ(gather(1, options), 2);
}

// The rank itself moves the bytes, when the update asks for them: loss and reduction 0
// from 6, update 0, reduction 1, update 1.
TEST(Simulator, CommunicationWithoutAThreadTakesTheRanksTime) {
  const Schedule schedule =
      generate(two_blocks(), {.dp = 2}, {.slices = 2, .bucket_bytes = 1});
  const Simulation simulation = simulate(schedule, round_costs(/*hidden=*/false));
  const double loss = 48.0 / 8192 * 1.5;
  EXPECT_NEAR(simulation.step, 6 + loss + 2 * (1.5 + 0.5), 1e-12);
  EXPECT_EQ(simulation.roles[0].hidden, 0);
}

TEST(Simulator, RanksMeetInACollective) {
  const Schedule schedule =
      generate(two_blocks(), {.dp = 3}, {.slices = 4, .bucket_bytes = 1});
  ASSERT_EQ(schedule.roles.size(), 2u);
  const Simulation simulation = simulate(schedule, round_costs());
  for (int bucket : {kLossBucket, 0, 1})
    EXPECT_EQ(time_of(schedule, simulation, 0, ActionKind::kReduce, bucket),
              time_of(schedule, simulation, 1, ActionKind::kReduce, bucket));
  // The loss is summed when the slower rank has seen its second slice forward.
  EXPECT_EQ(time_of(schedule, simulation, 0, ActionKind::kReduce, kLossBucket).begin,
            8);
}

TEST(Simulator, RingMovesTwiceAsMuchForASumEverywhere) {
  EXPECT_DOUBLE_EQ(ring_factor(ActionKind::kReduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(ring_factor(ActionKind::kReduceScatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(ring_factor(ActionKind::kGather, 4), 0.75);
}

TEST(Simulator, MemoryOverTimeIsWhatTheCheckerSays) {
  for (int shard = 0; shard <= 3; ++shard)
    for (bool recompute : {false, true}) {
      const Schedule schedule =
          generate(two_blocks(), {.dp = 2, .shard = shard},
                   {.slices = 4, .recompute = recompute, .prefetch = 0});
      const Simulation simulation = simulate(schedule, round_costs());
      const auto& curve = simulation.memory[0];
      const auto most = std::max_element(
          curve.begin(), curve.end(),
          [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
      const RolePeak peak = check(schedule).roles[0];
      EXPECT_LE(most->bytes, peak.parts.total()) << shard << recompute;
      EXPECT_GE(most->bytes, peak.parts.total() * 8 / 10) << shard << recompute;
      EXPECT_EQ(curve.back().bytes, kept_bytes(schedule, schedule.roles[0]));
    }
}

TEST(Simulator, EveryLayoutRunsToItsEnd) {
  for (bool hidden : {false, true})
    for (int shard = 0; shard <= 3; ++shard) {
      const Layout layout{.dp = 4, .shard = shard, .replicate = shard > 0 ? 2 : 1};
      const Schedule schedule = generate(two_blocks(), layout,
                                         {.slices = 6,
                                          .clip = true,
                                          .vote = true,
                                          .offload = true,
                                          .memory = MemoryIn::kDevice});
      const Simulation simulation = simulate(schedule, round_costs(hidden));
      for (size_t r = 0; r < schedule.roles.size(); ++r)
        for (size_t i = 0; i < schedule.roles[r].actions.size(); ++i)
          for (int wait : schedule.roles[r].actions[i].waits)
            EXPECT_LE(simulation.times[r][wait].end, simulation.times[r][i].begin);
    }
}

// Costs seen at two sizes of a slice foretell a third, and another layout.
// The share of a step in which places of a pipeline compute nothing.
double idle_share(const Simulation& simulation) {
  double busy = 0;
  for (const auto& role : simulation.roles) busy += role.compute;
  return 1 - busy / (static_cast<double>(simulation.roles.size()) * simulation.step);
}

TEST(Simulator, AnUnevenPipelineIdlesLessWhereItsCutKnowsTheSpeeds) {
  std::vector<BlockSpec> blocks(6);
  for (int b = 0; b < 6; ++b)
    blocks[b] = {.name = text("b", b),
                 .parameters = {{.name = text("w", b), .shape = {8}, .end = 8}},
                 .activation_bytes = 8,
                 .output_bytes = 8,
                 .cost = 1};
  const std::vector<double> speeds = {2, 1};
  CostTable costs;
  costs.blocks.assign(6, {{.fixed = 1}, {.fixed = 2}, {.fixed = 1}});
  costs.links["*"] = {};
  const auto on_uneven = [&](const PipelineOptions& options) {
    const Schedule schedule = cohort::generate(blocks, {.dp = 1, .pp = 2},
                                               {.slices = 8, .pipeline = options});
    return simulate(schedule, at_places(costs, schedule.stages, speeds));
  };
  const Simulation blind = on_uneven({}), knowing = on_uneven({.speeds = speeds});
  // A slice takes 9 and 18 seconds when blocks are 3 and 3, and 12 and 12 with 4 and 2.
  EXPECT_DOUBLE_EQ(blind.roles[0].compute, 8 * 9);
  EXPECT_DOUBLE_EQ(blind.roles[1].compute, 8 * 18);
  EXPECT_DOUBLE_EQ(knowing.roles[0].compute, 8 * 12);
  EXPECT_DOUBLE_EQ(knowing.roles[1].compute, 8 * 12);
  EXPECT_LT(knowing.step, blind.step);
  EXPECT_LT(idle_share(knowing), idle_share(blind));
}

TEST(Simulator, PlacesOfOneSpeedTakeWhatTheTableSays) {
  CostTable costs = round_costs();
  costs.blocks[1].backward_input = ComputeCost{.fixed = 1};
  const std::vector<Stage> stages = {{.place = 0, .blocks = {0}},
                                     {.place = 1, .blocks = {1}}};
  EXPECT_EQ(at_places(costs, stages, {}).blocks, costs.blocks);
  const std::vector<double> alike = {3, 3}, uneven = {4, 2};
  EXPECT_EQ(at_places(costs, stages, alike).blocks, costs.blocks);
  EXPECT_EQ(at_places(costs, {}, std::vector<double>{2}).blocks, costs.blocks);
  const CostTable slowed = at_places(costs, stages, uneven);
  EXPECT_EQ(slowed.blocks[0], costs.blocks[0]);
  EXPECT_DOUBLE_EQ(slowed.blocks[1].forward.seconds(4), 2);
  EXPECT_DOUBLE_EQ(slowed.blocks[1].backward.seconds(4), 4);
  EXPECT_DOUBLE_EQ(slowed.blocks[1].recompute.seconds(4), 2);
  EXPECT_DOUBLE_EQ(slowed.blocks[1].backward_input->seconds(4), 2);
  EXPECT_FALSE(slowed.blocks[1].backward_weight.has_value());
}

TEST(CostTable, IsFittedToStepsThatWereRun) {
  const auto blocks = two_blocks();
  CostTable truth = round_costs();
  truth.links.clear();
  truth.links["dp"] = {.latency = 0.1, .bytes_per_second = 1e5};
  std::vector<Schedule> schedules;
  std::vector<StepTimes> times;
  for (int bytes : {1, 1 << 20}) {  // buckets of two sizes
    schedules.push_back(
        generate(blocks, {.dp = 2}, {.slices = 2, .bucket_bytes = bytes}));
    truth.samples = bytes == 1 ? 4 : 8;
    times.push_back(simulate(schedules.back(), truth).times);
  }
  CostTable fitted = fit_costs(std::vector<ObservedStep>{{schedules[0], times[0], 4},
                                                         {schedules[1], times[1], 8}});
  const Schedule other = generate(blocks, {.dp = 2, .shard = 3}, {.slices = 6});
  truth.samples = fitted.samples = 32;
  EXPECT_NEAR(simulate(other, fitted).step, simulate(other, truth).step, 1e-6);
}

// Each kind of a group has a line of its own, and all together one for other kinds.
TEST(CostTable, KindsOfAGroupMayDiffer) {
  const Schedule schedule =
      generate(two_blocks(), {.dp = 2, .shard = 1}, {.slices = 2, .bucket_bytes = 1});
  CostTable truth = round_costs(/*hidden=*/false);
  truth.links["dp/Gather"] = {.hidden = false};
  truth.commit = {.fixed = 0.25};
  const StepTimes times = simulate(schedule, truth).times;
  const CostTable fitted = fit_costs(std::vector<ObservedStep>{
      {.schedule = schedule, .times = times, .samples = 4, .hidden = false}});
  EXPECT_FALSE(fitted.hidden("dp"));
  EXPECT_EQ(fitted.link("dp", ActionKind::kGather).seconds(8192), 0);
  EXPECT_NEAR(fitted.link("dp", ActionKind::kReduceScatter).seconds(4096), 0.75, 1e-9);
  EXPECT_EQ(&fitted.link("dp", ActionKind::kVote), &fitted.links.at("dp"));
  EXPECT_NEAR(simulate(schedule, fitted).step, simulate(schedule, truth).step, 1e-9);
}

TEST(CostTable, MustKnowWhatTheStepHas) {
  const Schedule schedule = generate(two_blocks(), {.dp = 2}, {.slices = 2});
  CostTable costs = round_costs();
  require_costs_of(schedule, costs);
  costs.blocks.pop_back();
  EXPECT_THROW(require_costs_of(schedule, costs), ConfigError);
  costs = round_costs();
  costs.links.clear();
  costs.links["shard"] = {};
  EXPECT_THROW(require_costs_of(schedule, costs), ConfigError);
}

TEST(CostTable, SurvivesTheWayThereAndBack) {
  CostTable costs = round_costs();
  costs.links["shard/Gather"] = {.latency = 1e-6};
  costs.free = {.fixed = 1e-6};
  costs.commit = {.fixed = 2e-6};
  costs.links["shard"] = {.latency = 3e-6, .bytes_per_second = 7e9, .hidden = false};
  const CostTable back = costs_from_csv(to_csv(costs));
  EXPECT_EQ(to_csv(back), to_csv(costs));
  EXPECT_EQ(back.samples, costs.samples);
  EXPECT_EQ(back.links.at("shard").hidden, false);
  EXPECT_EQ(back.blocks.size(), costs.blocks.size());
}

TEST(CostTable, ATextThatIsNoneIsRefusedWithTheLine) {
  const auto refusal = [](const std::string& csv) -> std::string {
    return test::message_of<ConfigError>([&] { costs_from_csv(csv); });
  };
  const std::string header = "what,name,fixed_us,per_sample_us,gb_per_s,hidden\n";
  EXPECT_THAT(refusal(""), testing::HasSubstr("what,name"));
  EXPECT_THAT(refusal(header + "forward,x,1,1,,\n"), testing::HasSubstr("line 2: 'x'"));
  EXPECT_THAT(refusal(header + "\nlnk,dp,1,,1,\n"),
              testing::HasSubstr("line 3: 'lnk'"));
  EXPECT_THAT(refusal(header + "link,dp,1,,0,\n"), testing::HasSubstr("above 0"));
  EXPECT_THAT(refusal(header + "link,dp/Gater,1,,1,\n"),
              testing::HasSubstr("nearest: Gather"));
  EXPECT_THAT(refusal(header + "link,dp,1,,1,maybe\n"),
              testing::HasSubstr("true, false"));
}

}  // namespace
}  // namespace cohort
