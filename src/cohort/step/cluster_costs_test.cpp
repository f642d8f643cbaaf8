// SPDX-License-Identifier: Apache-2.0
// Times, worked out by hand, of steps with links, calls inside blocks and nodes.
#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "cohort/step/generator.h"
#include "cohort/step/roles_met.h"
#include "cohort/step/simulator.h"
#include "cohort/step/testing_pipeline.h"

namespace cohort {
namespace {

using test::Pipeline;

// Forward 10 us, backward 20, update 1; groups that have no row cost nothing.
std::string table_with(const std::string& rows, int blocks = 2) {
  std::string csv = "what,name,fixed_us,per_sample_us,gb_per_s,hidden\n";
  for (int b = 0; b < blocks; ++b)
    csv += text("forward,", b, ",10,,,\nbackward,", b, ",20,,,\n");
  return csv + "update,,1,,,\nlink,*,,,,\n" + rows;
}

Simulation run(const Schedule& schedule, const std::string& rows) {
  const auto blocks = static_cast<int>(schedule.blocks.size());
  return simulate(schedule, costs_from_csv(table_with(rows, blocks)));
}

// In microseconds, by role; all actions of a kind, in order.
using Spans = std::vector<std::pair<double, double>>;
Spans spans_of(const Schedule& schedule, const Simulation& simulation, int role,
               ActionKind kind) {
  Spans spans;
  const auto& actions = schedule.roles[role].actions;
  const auto us = [](double seconds) { return std::round(seconds * 1e9) / 1e3; };
  for (size_t i = 0; i < actions.size(); ++i)
    if (actions[i].kind == kind)
      spans.emplace_back(us(simulation.times[role][i].begin),
                         us(simulation.times[role][i].end));
  return spans;
}

struct OldNumber {
  bool hidden;
  int dp, shard, replicate;
  double step, all;  // us; the second is the sum of all begins and ends
};

// As simulated before links, calls inside blocks and nodes had rows.
TEST(OldCosts, GiveTheSameNumbers) {
  std::vector<BlockSpec> blocks(3);
  for (int b = 0; b < 3; ++b)
    blocks[b] = {.name = text("b", b),
                 .parameters = {{.name = text("w", b), .shape = {3000}, .end = 3000}},
                 .activation_bytes = 1000};
  std::string rows = "samples,4,,,,\n";
  for (int b = 0; b < 3; ++b)
    rows += text("forward,", b, ",10,2.5,,\nbackward,", b, ",15,5,,\nrecompute,", b,
                 ",10,2,,\n");
  rows += "free,,1,,,\ncommit,,2,,,\nupdate,,3,,2,\ncopy,,3,,5,\n";
  const OldNumber before[] = {
      {true, 1, 0, 1, 1184.432, 61564.160},  {true, 3, 0, 1, 555.821, 32285.064},
      {true, 3, 1, 1, 549.533, 38397.864},   {true, 3, 2, 1, 549.533, 43656.168},
      {true, 3, 3, 1, 556.013, 63775.848},   {true, 4, 0, 1, 405.158, 18342.292},
      {true, 4, 1, 1, 394.774, 22401.372},   {true, 4, 1, 2, 407.601, 26329.404},
      {true, 4, 2, 1, 394.774, 24065.100},   {true, 4, 2, 2, 407.601, 27968.556},
      {true, 4, 3, 1, 399.014, 32457.140},   {true, 4, 3, 2, 408.793, 36807.380},
      {false, 1, 0, 1, 1184.432, 61564.160}, {false, 3, 0, 1, 603.653, 34590.408},
      {false, 3, 1, 1, 591.077, 40750.600},  {false, 3, 2, 1, 670.229, 53723.112},
      {false, 3, 3, 1, 764.189, 89559.832},  {false, 4, 0, 1, 469.382, 21139.444},
      {false, 4, 1, 1, 444.518, 25098.556},  {false, 4, 1, 2, 464.710, 29791.404},
      {false, 4, 2, 1, 496.382, 30675.452},  {false, 4, 2, 2, 504.286, 35251.100},
      {false, 4, 3, 1, 566.246, 47319.476},  {false, 4, 3, 2, 592.438, 56362.692},
  };
  for (const auto& old : before) {
    const Schedule schedule =
        generate(blocks, {.dp = old.dp, .shard = old.shard, .replicate = old.replicate},
                 {.slices = 7, .bucket_bytes = 1, .clip = true, .vote = true});
    const std::string hidden = old.hidden ? "true\n" : "false\n";
    const Simulation now =
        run(schedule, rows + "link,*,5,,1," + hidden + "link,dp/Gather,4,,2," + hidden +
                          "link,replicate,3,,3," + hidden);
    double all = 0;
    for (const auto& role : now.times)
      for (const auto& time : role) all += time.begin + time.end;
    EXPECT_NEAR(now.step * 1e6, old.step, 1e-3)
        << old.hidden << old.dp << old.shard << old.replicate;
    EXPECT_NEAR(all * 1e6, old.all, 1e-2)
        << old.hidden << old.dp << old.shard << old.replicate;
  }
}

// A pipeline of two stages, two slices, with links of these costs.
struct TwoStages {
  explicit TwoStages(const std::string& links) : simulation(run(schedule, links)) {}

  Spans at(int role, ActionKind kind) const {
    return spans_of(schedule, simulation, role, kind);
  }

  Schedule schedule = make(Pipeline{.slices = 2, .ends = {1, 2}, .order = test::gpipe});
  Simulation simulation;
};

// A transfer of 1000 bytes takes 2 + 2 us.
TEST(LinkCosts, GPipeOfTwoStages) {
  const TwoStages pipe("link,pp,2,,0.5,\n");
  EXPECT_EQ(pipe.at(0, ActionKind::kForward), (Spans{{0, 10}, {10, 20}}));
  EXPECT_EQ(pipe.at(0, ActionKind::kSend), (Spans{{10, 14}, {20, 24}}));
  EXPECT_EQ(pipe.at(1, ActionKind::kRecv), (Spans{{10, 14}, {20, 24}}));
  EXPECT_EQ(pipe.at(1, ActionKind::kForward), (Spans{{14, 24}, {24, 34}}));
  EXPECT_EQ(pipe.at(1, ActionKind::kBackward), (Spans{{34, 54}, {54, 74}}));
  EXPECT_EQ(pipe.at(1, ActionKind::kSend), (Spans{{54, 58}, {74, 78}}));
  EXPECT_EQ(pipe.at(0, ActionKind::kRecv), (Spans{{54, 58}, {74, 78}}));
  EXPECT_EQ(pipe.at(0, ActionKind::kBackward), (Spans{{58, 78}, {78, 98}}));
  EXPECT_NEAR(pipe.simulation.step * 1e6, 99, 1e-9);
}

// The receiver moves the bytes when it waits for them: the second output at 24, the
// second gradient at 82.
TEST(LinkCosts, TransfersWithoutAThreadTakeTheReceiversTime) {
  const TwoStages pipe("link,pp,2,,0.5,false\n");
  EXPECT_EQ(pipe.at(1, ActionKind::kRecv), (Spans{{10, 14}, {24, 28}}));
  EXPECT_EQ(pipe.at(0, ActionKind::kSend), (Spans{{10, 14}, {24, 28}}));
  EXPECT_EQ(pipe.at(1, ActionKind::kBackward), (Spans{{38, 58}, {58, 78}}));
  EXPECT_EQ(pipe.at(0, ActionKind::kRecv), (Spans{{58, 62}, {82, 86}}));
  EXPECT_NEAR(pipe.simulation.step * 1e6, 107, 1e-9);
}

TEST(LinkCosts, ALinkMayHaveARowOfItsOwn) {
  const TwoStages pipe("link,pp,2,,0.5,\nlink,0>1,10,,,\n");
  EXPECT_EQ(pipe.at(1, ActionKind::kRecv), (Spans{{10, 20}, {20, 30}}));
  EXPECT_EQ(pipe.at(0, ActionKind::kRecv), (Spans{{60, 64}, {80, 84}}));
}

// The times of a role's calls in a lane, in their order.
std::vector<ActionTime> times_in_lane(const Schedule& schedule,
                                      const Simulation& simulation, int role,
                                      int lane) {
  std::vector<ActionTime> times;
  const auto& actions = schedule.roles[role].actions;
  for (size_t i = 0; i < actions.size(); ++i)
    if (actions[i].lane == lane) times.push_back(simulation.times[role][i]);
  return times;
}

// Whether anybody waits for it or not: a Send and its Recv, and what a group does.
TEST(LinkCosts, AllWhoAreInACallHaveItsTime) {
  int pairs = 0;
  for (const std::string hidden : {"true", "false"})
    for (const auto& one : test::right_pipelines()) {
      const Schedule schedule = make(one.pipe);
      const Simulation simulation =
          run(schedule, text("link,*,1,,1,", hidden, "\nlink,pp,2,,0.5,", hidden,
                             "\nlink,pp/Send,3,,,", hidden, "\n"));
      const RolesMet met = roles_met_in_lanes(schedule);
      for (int r = 0; r < static_cast<int>(met.size()); ++r)
        for (int lane = 0; lane < schedule.lanes(); ++lane)
          for (const int peer : met[r][lane]) {
            if (peer <= r || met[peer][lane] != met[r][lane]) continue;
            EXPECT_EQ(times_in_lane(schedule, simulation, r, lane),
                      times_in_lane(schedule, simulation, peer, lane))
                << one.name << ' ' << hidden << ' ' << schedule.name_of_lane(lane);
            ++pairs;
          }
    }
  EXPECT_GT(pairs, 100);
}

TEST(BackwardCosts, HalvesOfBackwardUnlessTheyHaveRows) {
  const Schedule schedule =
      make(Pipeline{.places = 1, .slices = 1, .ends = {1}, .order = test::zero_bubble});
  EXPECT_NEAR(run(schedule, "").step * 1e6, 10 + 10 + 10 + 1, 1e-9);
  EXPECT_NEAR(run(schedule, "backward_input,0,12,,,\n").step * 1e6, 10 + 12 + 10 + 1,
              1e-9);
  EXPECT_NEAR(
      run(schedule, "backward_weight,0,6,1,,\nbackward_input,0,12,,,\n").step * 1e6,
      10 + 12 + 7 + 1, 1e-9);
}

// The most particular row counts: two calls of 1000 bytes in each forward and backward.
TEST(InnerCosts, CallsMakeABlockLonger) {
  const Schedule schedule = make(Pipeline{
      .places = 1, .tensor = 2, .slices = 1, .ends = {1}, .order = test::gpipe});
  const double compute = 10 + 20 + 1;
  const std::string all = "link,all,,,,\n";
  EXPECT_NEAR(run(schedule, all + "link,*,4,,,\n").step * 1e6, compute + 16, 1e-9);
  EXPECT_NEAR(run(schedule, all + "link,*,4,,,\nlink,tp,3,,,\n").step * 1e6,
              compute + 12, 1e-9);
  EXPECT_NEAR(
      run(schedule, all + "link,tp,3,,,\nlink,tp/AllReduce,3,,0.5,\n").step * 1e6,
      compute + 4 * (3 + 2), 1e-9);
  // Nobody but the rank itself waits inside a block.
  EXPECT_NEAR(run(schedule, all + "link,tp,3,,,false\n").step * 1e6, compute + 12,
              1e-9);
}

// Bytes on a ring of three: 4/3 for a sum everywhere, 2/3 for the others.
TEST(InnerCosts, OperationsMoveWhatTheyMoveOnARing) {
  using Op = CallOp;
  for (const auto& [op, name, factor] :
       {std::tuple{Op::kAllReduce, "AllReduce", 4.0 / 3},
        std::tuple{Op::kAllGather, "AllGather", 2.0 / 3},
        std::tuple{Op::kReduceScatter, "ReduceScatter", 2.0 / 3},
        std::tuple{Op::kAllToAll, "AllToAll", 2.0 / 3}}) {
    Schedule schedule = make(Pipeline{
        .places = 1, .tensor = 3, .slices = 1, .ends = {1}, .order = test::gpipe});
    for (auto& action : schedule.roles[0].actions)
      for (auto& call : action.calls) call = {call.group, op, 3000};
    const std::string row = text("link,tp,100,,,\nlink,tp/", name, ",,,1,\n");
    EXPECT_NEAR(run(schedule, row).step * 1e6, 31 + 4 * 3 * factor, 1e-9) << name;
  }
}

// Ranks of a tensor-parallel group, each with a list of its own. They free something
// first, so many times; that takes 7 us each.
Schedule tensor_ranks(const std::vector<int>& frees) {
  const auto ranks = static_cast<int>(frees.size());
  Schedule schedule{.mesh = Mesh(std::array<int, kAxes>{1, 1, 1, 1, ranks})};
  schedule.groups = {{"tp", {Axis::kTensor}}};
  schedule.channels = {{.kind = Channel::Kind::kCompute}};
  schedule.blocks = {"b"};
  for (int rank = 0; rank < ranks; ++rank) {
    Role role{.ranks = {rank}};
    role.actions.assign(frees[rank], {.kind = ActionKind::kFree});
    for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward})
      role.actions.push_back(
          {.kind = kind,
           .block = 0,
           .slice = 0,
           .calls = {{.group = 0, .bytes = 1000}, {.group = 0, .bytes = 1000}}});
    schedule.roles.push_back(role);
  }
  return schedule;
}

// The late rank begins at 7 and comes to its first call, after half of its forward, at
// 12. All go on at 17, come to the second at 22 and are done at 27.
TEST(InnerCosts, ALatePeerHoldsUpTheOthersInsideTheirBlocks) {
  for (const std::vector<int>& frees : {std::vector{0, 1}, std::vector{0, 1, 0}}) {
    const Schedule schedule = tensor_ranks(frees);
    const Simulation simulation = run(schedule, "free,,7,,,\nlink,tp,5,,,\n");
    for (int rank = 0; rank < schedule.world(); ++rank) {
      EXPECT_EQ(spans_of(schedule, simulation, rank, ActionKind::kForward),
                (Spans{{frees[rank] * 7, 27}}));
      EXPECT_EQ(spans_of(schedule, simulation, rank, ActionKind::kBackward),
                (Spans{{27, 57}}));
    }
  }
}

TEST(InnerCosts, ACallThatAPeerNeverMakesIsNamed) {
  Schedule schedule = tensor_ranks({0, 0, 0});
  schedule.roles[1].actions.back().calls.pop_back();
  try {
    run(schedule, "");
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("role 0, action 1 Backward"),
              std::string::npos)
        << error.what();
  }
}

// How long the reduction of the one bucket takes: 2 us on one node, 50 between nodes.
double reduction(int dp, const std::string& rows) {
  std::vector<BlockSpec> block(1);
  block[0] = {.name = "b", .parameters = {{.name = "w", .shape = {12}, .end = 12}}};
  const Schedule schedule = generate(block, {.dp = dp}, {.slices = dp});
  const Simulation simulation = run(schedule, "link,dp,2,,,\n" + rows);
  const Spans spans = spans_of(schedule, simulation, 0, ActionKind::kReduce);
  return spans.back().second - spans.back().first;
}

TEST(NodeCosts, AGroupOnTwoNodesCostsMore) {
  const std::string rows = "link,dp@nodes,50,,,\n";
  EXPECT_EQ(reduction(4, rows), 2);  // without a size, one node has all
  EXPECT_EQ(reduction(4, rows + "ranks_per_node,4,,,,\n"), 2);
  EXPECT_EQ(reduction(4, rows + "ranks_per_node,8,,,,\n"), 2);
  EXPECT_EQ(reduction(4, rows + "ranks_per_node,2,,,,\n"), 50);
  EXPECT_EQ(reduction(3, rows + "ranks_per_node,2,,,,\n"), 50);
  EXPECT_EQ(reduction(3, rows + "ranks_per_node,1,,,,\n"), 50);
  EXPECT_EQ(reduction(3, "ranks_per_node,1,,,,\n"), 2);  // one level, as before
}

TEST(NodeCosts, TheMostParticularRowBetweenNodesCounts) {
  std::string rows = "ranks_per_node,2,,,,\nlink,*@nodes,40,,,\n";
  EXPECT_EQ(reduction(5, rows), 40);
  rows += "link,dp@nodes,50,,,\n";
  EXPECT_EQ(reduction(5, rows), 50);
  rows += "link,dp/Reduce@nodes,60,,,\nlink,dp/Gather@nodes,70,,,\n";
  EXPECT_EQ(reduction(5, rows), 60);
}

// Shards lie on one node, their replicas on the other; with three ranks on a node one
// of the two shard groups is on both.
TEST(NodeCosts, OneGroupOfSeveralOnTwoNodesIsEnough) {
  std::vector<BlockSpec> block(1);
  block[0] = {.name = "b", .parameters = {{.name = "w", .shape = {12}, .end = 12}}};
  const Schedule schedule =
      generate(block, {.dp = 4, .shard = 2, .replicate = 2}, {.slices = 4});
  const auto lasts = [&](ActionKind kind, int per_node) {
    const Spans spans =
        spans_of(schedule,
                 run(schedule, text("link,*,2,,,\nlink,*@nodes,50,,,\nranks_per_node,",
                                    per_node, ",,,,\n")),
                 0, kind);
    return spans.back().second - spans.back().first;
  };
  EXPECT_EQ(lasts(ActionKind::kReduceScatter, 2), 2);
  EXPECT_EQ(lasts(ActionKind::kReduce, 2), 50);
  EXPECT_EQ(lasts(ActionKind::kReduceScatter, 3), 50);
}

// Places 0 and 1 share a node, 2 is on another.
TEST(NodeCosts, LinksAndInnerCallsHaveTwoLevelsToo) {
  const Schedule pipe =
      make(Pipeline{.places = 3, .slices = 1, .ends = {1, 2, 3}, .order = test::gpipe});
  const Simulation simulation =
      run(pipe, "ranks_per_node,2,,,,\nlink,pp,2,,,\nlink,pp@nodes,30,,,\n");
  EXPECT_EQ(spans_of(pipe, simulation, 1, ActionKind::kRecv),
            (Spans{{10, 12}, {82, 112}}));
  EXPECT_EQ(spans_of(pipe, simulation, 1, ActionKind::kSend),
            (Spans{{22, 52}, {132, 134}}));
  const std::string rows = "link,tp,2,,,\nlink,tp/AllReduce@nodes,30,,,\n";
  const Schedule tensor = tensor_ranks({0, 0, 0});
  EXPECT_NEAR(run(tensor, rows + "ranks_per_node,3,,,,\n").step * 1e6, 30 + 4 * 2,
              1e-9);
  EXPECT_NEAR(run(tensor, rows + "ranks_per_node,2,,,,\n").step * 1e6, 30 + 4 * 30,
              1e-9);
}

// Whether communication works beside computation may differ between nodes.
TEST(NodeCosts, WhatCrossesNodesMayBeHiddenWhereTheRestIsNot) {
  const std::string inside = "link,*,1,,,false\n";
  const auto hidden = [&](const std::string& rows) {
    std::vector<BlockSpec> blocks(2);
    for (int b = 0; b < 2; ++b)
      blocks[b] = {.name = text("b", b),
                   .parameters = {{.name = text("w", b), .shape = {12}, .end = 12}}};
    return run(generate(blocks, {.dp = 3}, {.slices = 3, .bucket_bytes = 1}),
               inside + rows)
               .roles[0]
               .hidden > 0;
  };
  const std::string node = "ranks_per_node,2,,,,\n";
  EXPECT_FALSE(hidden(""));
  EXPECT_FALSE(hidden(node));
  EXPECT_TRUE(hidden(node + "link,*@nodes,1,,,true\n"));
  EXPECT_FALSE(hidden(node + "link,*@nodes,1,,,true\nlink,dp@nodes,1,,,false\n"));
  // Another kind's row leaves the others at the rows of one node.
  EXPECT_FALSE(hidden(node + "link,dp/Gather@nodes,1,,,true\n"));
}

}  // namespace
}  // namespace cohort
