// SPDX-License-Identifier: Apache-2.0
// Tables of costs as text, what a step must find in one, and tables from measured
// steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/step/action_costs.h"
#include "cohort/step/cost_fit.h"
#include "cohort/step/simulator.h"
#include "cohort/step/testing_pipeline.h"

namespace cohort {
namespace {

using test::Pipeline;
using testing::HasSubstr;

const std::string kRowHeader = "what,name,fixed_us,per_sample_us,gb_per_s,hidden\n";

// What is written says how many rows there are.
std::string counted(const std::string& rows) {
  return text(kRowHeader, "rows,", std::ranges::count(rows, '\n'), ",,,,\n", rows);
}

std::string refused_row(const std::string& row) {
  return test::message_of<ConfigError>([&] { costs_from_csv(kRowHeader + row); });
}

TEST(CostRows, AllComeBack) {
  const std::string csv = counted(
      "samples,8,,,,\n"
      "ranks_per_node,4,,,,\n"
      "forward,0,1,2,,\n"
      "backward,0,3,4,,\n"
      "recompute,0,5,6,,\n"
      "backward_input,0,7,8,,\n"
      "backward_weight,0,0,0,,\n"
      "free,,1,0,,\n"
      "commit,,2,0,,\n"
      "update,,3,,2,true\n"
      "copy,,4,,10,true\n"
      "link,*,5,,10,true\n"
      "link,*/AllReduce,5,,11,true\n"
      "link,*@nodes,50,,1,true\n"
      "link,0>1,2,,20,false\n"
      "link,0>1@nodes,2,,20,false\n"
      "link,dp/Gather@nodes,9,,,true\n"
      "link,tp/AllGather,4,,,false\n"
      "link,tp/AllToAll,4,,,false\n");
  EXPECT_EQ(to_csv(costs_from_csv(csv)), csv);
}

// A table without the new rows has none of them when it is written, either.
TEST(CostRows, OldTablesAreWrittenAsTheyWere) {
  const std::string rows =
      "samples,16,,,,\n"
      "forward,0,20,3.5,,\n"
      "backward,0,30,7.1,,\n"
      "recompute,0,20,3.5,,\n"
      "free,,1,0,,\n"
      "commit,,10,0,,\n"
      "update,,5,,2,true\n"
      "copy,,5,,10,true\n"
      "link,*,5,,10,true\n"
      "link,dp,6,,12,false\n"
      "link,dp/Gather,4,,15,false\n";
  EXPECT_EQ(to_csv(costs_from_csv(kRowHeader + rows)), counted(rows));
}

TEST(CostRows, ATableThatIsCutOffIsRefusedWhereverItEnds) {
  const std::string rows = "samples,8,,,,\nforward,0,1,2,,\nlink,*,5,,10,false\n";
  const std::string csv = "# of two ranks\n" + counted(rows);
  const auto refusal = [](const std::string& table) {
    return test::message_of<ConfigError>([&] { costs_from_csv(table); });
  };
  EXPECT_EQ(refusal(csv), "no error");
  for (size_t size = 0; size < csv.size(); ++size)
    EXPECT_NE(refusal(csv.substr(0, size)), "no error") << csv.substr(0, size);
  EXPECT_EQ(
      refusal(counted(rows).substr(0, counted(rows).rfind("link"))),
      "[step.costs] the table is cut off: 2 whole rows behind 'rows,3'; legal: that "
      "many, each with the end of its line, or no such row");
  EXPECT_EQ(refusal(csv + "link,dp,1,,1,"), "no error");  // added by hand
  EXPECT_EQ(refusal(kRowHeader + rows), "no error");      // of old
}

TEST(CostRows, WrongOnesAreRefusedInOneLine) {
  EXPECT_EQ(refused_row("ranks_per_node,0,,,,\n"),
            "[step.costs] line 2: '0'; legal: a whole number from 1");
  EXPECT_THAT(refused_row("ranks_per_node,2.5,,,,\n"), HasSubstr("line 2: '2.5'"));
  EXPECT_THAT(refused_row("ranks_per_node,99999999999,,,,\n"), HasSubstr("line 2"));
  EXPECT_THAT(refused_row("ranks_per_node,,,,,\n"), HasSubstr("line 2: ''"));
  EXPECT_EQ(
      refused_row("link,dp@hosts,1,,1,\n"),
      "[step.costs] line 2: 'dp@hosts'; legal: a group, a link such as 0>1, or *; "
      "then /Kind, then @nodes, where one is meant");
  EXPECT_THAT(refused_row("link,@nodes,1,,1,\n"), HasSubstr("line 2: '@nodes'"));
  EXPECT_THAT(refused_row("link,/Gather@nodes,1,,1,\n"), HasSubstr("line 2"));
  EXPECT_THAT(refused_row("link,dp@nodes/Gather,1,,1,\n"), HasSubstr("line 2"));
  EXPECT_THAT(refused_row("link,tp/AllReduse,1,,1,\n"),
              HasSubstr("nearest: AllReduce"));
  EXPECT_THAT(refused_row("link,tp/AllGater@nodes,1,,1,\n"),
              HasSubstr("nearest: AllGather"));
  EXPECT_THAT(refused_row("backward_input,x,1,1,,\n"), HasSubstr("line 2: 'x'"));
  EXPECT_THAT(refused_row("backward_wait,0,1,1,,\n"), HasSubstr("backward_weight"));
}

// What was measured of links serves any model.
TEST(CostRows, ATableOfLinksAloneIsTakenIntoAnother) {
  const std::string csv = counted(
      "ranks_per_node,4,,,,\nupdate,,7,,,true\n"
      "link,dp,1,,1,true\nlink,pp@nodes,2,,2,false\n");
  const CostTable links = costs_from_csv(csv);
  EXPECT_EQ(to_csv(links), csv);
  CostTable costs = costs_from_csv(
      kRowHeader + "samples,3,,,,\nforward,0,1,1,,\ncopy,,4,,,\nlink,*,9,,,\n");
  take_links(links, costs);
  EXPECT_EQ(costs.samples, 3);
  EXPECT_EQ(costs.blocks.size(), 1u);
  EXPECT_EQ(costs.copy.latency, 4e-6);
  EXPECT_EQ(costs.update.latency, 7e-6);
  EXPECT_EQ(costs.ranks_per_node, 4);
  EXPECT_EQ(costs.links, links.links);
}

TEST(CostRows, KindsMayHaveARowForAllGroups) {
  const CostTable costs =
      costs_from_csv(kRowHeader + "link,*,1,,,\nlink,*/Gather,2,,,\nlink,dp,3,,,\n");
  EXPECT_EQ(costs.link("shard", ActionKind::kGather).latency, 2e-6);
  EXPECT_EQ(costs.link("shard", ActionKind::kReduce).latency, 1e-6);
  EXPECT_EQ(costs.link("dp", ActionKind::kGather).latency, 3e-6);
}

// Forward and backward of two blocks; a row for each of the names.
CostTable costs_of(const std::vector<std::string>& links) {
  std::string csv = kRowHeader;
  for (const char* block : {"0", "1"})
    csv += text("forward,", block, ",10,1,,\nbackward,", block, ",20,2,,\n");
  for (const auto& link : links) csv += text("link,", link, ",1,,1,\n");
  return costs_from_csv(csv);
}

TEST(CostRows, AStepMustFindItsLinksAndInnerCalls) {
  const Schedule schedule = make(Pipeline{
      .places = 2, .tensor = 3, .slices = 2, .ends = {1, 2}, .order = test::gpipe});
  const auto missing = [&](const std::vector<std::string>& links) {
    return test::message_of<ConfigError>(
        [&] { require_costs_of(schedule, costs_of(links)); });
  };
  EXPECT_EQ(missing({"all", "pp", "tp"}), "no error");
  EXPECT_EQ(missing({"*"}), "no error");
  EXPECT_EQ(missing({"all", "0>1", "1>0", "tp/AllReduce"}), "no error");
  EXPECT_EQ(
      missing({"all", "tp"}),
      "[step.costs] no row for Send on link 0>1; legal: a row link,0>1 or link,pp "
      "or link,*");
  EXPECT_EQ(missing({"all", "pp"}),
            "[step.costs] no row for AllReduce of group tp; legal: a row link,tp or "
            "link,*");
  EXPECT_THAT(missing({"pp", "tp"}), HasSubstr("no row for Reduce of group all"));
}

// A step that was run so explains itself, and one of another shape.
TEST(CostFit, LinksAndHalvesOfBackward) {
  const Pipeline pipe{.places = 3,
                      .replicas = 2,
                      .slices = 8,
                      .ends = {1, 2, 3},
                      .order = test::zero_bubble};
  const Schedule schedule = make(pipe);
  CostTable truth = costs_of({"all", "dp"});
  truth = costs_from_csv(to_csv(truth) +
                         "forward,2,5,1,,\nbackward,2,9,2,,\nbackward_input,0,4,1,,\n"
                         "backward_weight,0,6,2,,\nlink,pp,3,,0.5,\nlink,1>2,8,,1,\n");
  std::vector<StepTimes> times;
  for (double samples : {4.0, 8.0}) {
    truth.samples = samples;
    times.push_back(simulate(schedule, truth).times);
  }
  CostTable fitted = fit_costs(
      std::vector<ObservedStep>{{schedule, times[0], 4}, {schedule, times[1], 8}});
  require_costs_of(schedule, fitted);
  EXPECT_NEAR(fitted.link("1>2", ActionKind::kSend).seconds(1000), 9e-6, 1e-12);
  EXPECT_NEAR(fitted.link("0>1", ActionKind::kRecv).seconds(1000), 5e-6, 1e-12);
  // Nobody ran a whole backward: it is both halves.
  EXPECT_NEAR(fitted.blocks[0].backward.seconds(16), (10 + 3 * 16) * 1e-6, 1e-11);
  EXPECT_NEAR(fitted.blocks[1].backward.seconds(16), (20 + 2 * 16) * 1e-6, 1e-11);
  fitted.samples = truth.samples = 32;
  EXPECT_NEAR(simulate(schedule, fitted).step, simulate(schedule, truth).step, 1e-10);
}

// What a link shows includes waiting for the other end: the receiver of the first
// output waits 10 us for a forward, so the sender's time counts.
TEST(CostFit, TheShorterEndOfATransferCounts) {
  const Schedule schedule =
      make(Pipeline{.slices = 3, .ends = {1, 2}, .order = test::gpipe});
  StepTimes times = simulate(schedule, costs_of({"*"})).times;
  for (size_t r = 0; r < times.size(); ++r)
    for (size_t i = 0; i < times[r].size(); ++i)
      if (schedule.roles[r].actions[i].kind == ActionKind::kRecv) times[r][i].begin = 0;
  const CostTable fitted = fit_costs(std::vector<ObservedStep>{{schedule, times, 1}});
  EXPECT_NEAR(fitted.link("pp", ActionKind::kSend).seconds(1000), 2e-6, 1e-12);
}

// Inside a block nobody sees a call: the block's row has it, and its own is 0.
TEST(CostFit, UnknownInnerCallsArePartOfTheBlock) {
  const Schedule schedule = make(Pipeline{
      .places = 1, .tensor = 3, .slices = 2, .ends = {2}, .order = test::gpipe});
  const CostTable truth = costs_of({"all", "tp"});
  const Simulation run = simulate(schedule, truth);
  const CostTable fitted =
      fit_costs(std::vector<ObservedStep>{{schedule, run.times, 1}});
  require_costs_of(schedule, fitted);
  const double calls = 2 * (1 + 4.0 / 3) * 1e-6;
  EXPECT_NEAR(fitted.blocks[0].forward.seconds(1), 11e-6 + calls, 1e-12);
  EXPECT_EQ(fitted.links.at("tp/AllReduce").seconds(1e9), 0);
  EXPECT_NEAR(simulate(schedule, fitted).step, run.step, 1e-11);
}

// With the call's row from elsewhere, the block's row is for its computation alone.
TEST(CostFit, KnownInnerCallsAreTakenOffTheBlock) {
  const Schedule schedule = make(Pipeline{
      .places = 1, .tensor = 3, .slices = 2, .ends = {2}, .order = test::gpipe});
  const CostTable truth = costs_of({"all", "tp"});
  const Simulation run = simulate(schedule, truth);
  const CostTable fitted = fit_costs(
      std::vector<ObservedStep>{{schedule, run.times, 1}}, costs_of({"tp/AllReduce"}));
  EXPECT_NEAR(fitted.blocks[1].forward.seconds(1), 11e-6, 1e-12);
  EXPECT_NEAR(fitted.blocks[1].backward.seconds(1), 22e-6, 1e-12);
  EXPECT_EQ(fitted.links.at("tp/AllReduce"), truth.links.at("tp"));
  EXPECT_NEAR(simulate(schedule, fitted).step, run.step, 1e-11);
}

TEST(CostFit, ALinkIsALineThroughItsCalls) {
  const std::vector<TimedCall> calls = {{1e3, 3e-6}, {1e6, 1.002e-3}, {1e6, 1.002e-3}};
  const LinkCost link = fit_link(calls);
  EXPECT_NEAR(link.latency, 2e-6, 1e-12);
  EXPECT_NEAR(link.bytes_per_second, 1e9, 1);
}

}  // namespace
}  // namespace cohort
