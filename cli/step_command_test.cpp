// SPDX-License-Identifier: Apache-2.0
#include "cli/step_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cohort/core/error.h"
#include "cohort/core/file.h"
#include "cohort/core/testing_error.h"
#include "cohort/core/testing_folder.h"
#include "recipes/testing_recipes.h"

namespace cohort::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class StepCommand : public testing::Test {
 protected:
  std::string path(const char* name) const { return folder_ / name; }

  std::string shown(const StepArgs& args) const {
    std::ostringstream out;
    EXPECT_EQ(run_step(args, test::recipes(), out), 0);
    return out.str();
  }

  std::string refusal(const StepArgs& args) const {
    std::ostringstream out;
    return test::message_of<ConfigError>([&] { run_step(args, test::recipes(), out); });
  }

 private:
  test::TempFolder folder_;
};

StepArgs small_mlp() {
  return {
      .recipe = "mlp", .ranks = "3", .set = {"model.width=32", "batch=12", "slices=4"}};
}

TEST_F(StepCommand, ShowsWhatAStepIsAndCosts) {
  StepArgs args = small_mlp();
  args.layout = "shard=3";
  EXPECT_THAT(shown(args), AllOf(HasSubstr("dp=3,shard=3"), HasSubstr("3 in 2 roles"),
                                 HasSubstr("ReduceScatter"), HasSubstr("activations"),
                                 HasSubstr("accepted")));
}

// Nine layers of two slices, forward and backward; 2 (2 C + 2) and 2 (2 C) times 8
// bytes go round a ring of three.
TEST_F(StepCommand, CountsTheCallsInsideBlocks) {
  const StepArgs args{
      .recipe = "cifar-resnet50v2",
      .ranks = "3",
      .set = {"model.name=resnet18", "model.norm=batch", "model.width=4",
              "model.depth=1", "data.synthetic=true", "batch=12", "slices=6"}};
  EXPECT_THAT(shown(args), HasSubstr("48 inside blocks"));
}

// Each place along a pipeline updates its own.
TEST_F(StepCommand, CountsTheBucketsOfAllPlaces) {
  const char* const source = std::getenv("COHORT_SOURCE");
  ASSERT_NE(source, nullptr) << "run through ctest";
  EXPECT_THAT(
      shown({.from = text(source, "/examples/schedules/one_forward_one_backward.csv")}),
      AllOf(HasSubstr("dp=1,pp=4"), HasSubstr("4, 4 updated")));
}

// A row per stage: memory, and bytes by the way that they go.
TEST_F(StepCommand, ShowsWhatEachStageHoldsAndMoves) {
  StepArgs args{.recipe = "gpt-tiny",
                .ranks = "8",
                .layout = "dp=2,tp=2,pp=2,shard=1",
                .set = {"model.width=16", "model.context=8", "model.depth=2",
                        "data.synthetic=true", "batch=4", "slices=4"}};
  const std::string words = shown(args);
  EXPECT_THAT(words, AllOf(HasSubstr("inside blocks"), HasSubstr("over links"),
                           HasSubstr("\n0      0-3 "), HasSubstr("\n1      4-7 ")));
  args.json = true;
  const StepView view = view_step(args, test::recipes());
  ASSERT_EQ(view.report.volumes.size(), 2u);
  for (const RoleVolume& volume : view.report.volumes) {
    EXPECT_GT(volume.groups.sent, 0);
    EXPECT_GT(volume.blocks.sent, 0);
    EXPECT_GT(volume.links.sent, 0);
    EXPECT_THAT(
        shown(args),
        HasSubstr(text("\"sent_bytes\":", static_cast<int64_t>(volume.total().sent))));
  }
}

TEST_F(StepCommand, JsonIsOneLine) {
  StepArgs args = small_mlp();
  args.json = true;
  const std::string line = shown(args);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_THAT(line,
              AllOf(HasSubstr("\"world\":3"), HasSubstr("\"verdict\":\"accepted\""),
                    HasSubstr("\"peak_memory_bytes\":")));
}

TEST_F(StepCommand, OffloadedStateIsShownWhereItIs) {
  StepArgs args = small_mlp();
  EXPECT_THAT(shown(args), testing::Not(HasSubstr("on the host")));
  args.set.push_back("step.offload=optimizer");
  EXPECT_THAT(shown(args), AllOf(HasSubstr(" on the device, "), HasSubstr("accepted")));
  args.csv = path("offloaded.csv");
  shown(args);
  EXPECT_THAT(read_file(args.csv), HasSubstr("holds=whole,bucket=0,dtype=float32,"));
  EXPECT_THAT(read_file(args.csv), HasSubstr("place=device"));
  EXPECT_THAT(shown({.from = args.csv}), HasSubstr(" on the device, "));
}

TEST_F(StepCommand, WhatItWritesItReads) {
  StepArgs args = small_mlp();
  args.csv = path("step.csv");
  args.svg = path("step.svg");
  args.trace = path("step.json");
  const std::string first = shown(args);
  EXPECT_THAT(read_file(args.svg), HasSubstr("mlp, dp=3,shard=0"));
  EXPECT_THAT(read_file(args.trace), HasSubstr("Forward"));
  const std::string again = shown({.from = args.csv, .svg = path("again.svg")});
  EXPECT_THAT(again, AllOf(HasSubstr("dp=3"), HasSubstr("accepted")));
  EXPECT_THAT(read_file(path("again.svg")), HasSubstr("step.csv, dp=3"));
}

TEST_F(StepCommand, AFileSaysWhatTheStepIs) {
  StepArgs args = small_mlp();
  args.csv = path("step.csv");
  shown(args);
  const auto refused = [&](StepArgs given) -> std::string {
    given.from = args.csv;
    return test::message_of<ConfigError>([&] { shown(given); });
  };
  EXPECT_EQ(refused({}), "no error");
  EXPECT_THAT(refused({.ranks = "9"}), HasSubstr("legal with --from"));
  EXPECT_THAT(refused({.set = {"batch=3"}}), HasSubstr("legal with --from"));
  EXPECT_THAT(refused({.set = {"memory.limit=1K"}}), HasSubstr("the limit is"));
}

// Twice the samples of a slice, and nothing else changes: costs of blocks are a line.
TEST_F(StepCommand, CostsFromAFileServeAnotherBatch) {
  StepArgs args = small_mlp();
  args.costs_out = path("costs.csv");
  shown(args);
  args.costs = args.costs_out;
  args.costs_out.clear();
  args.set.push_back("batch=24");
  const StepView view = view_step(args, test::recipes());
  EXPECT_EQ(view.costs_from, args.costs);
  EXPECT_EQ(view.costs.samples, 6);
  args.recipe = "fashion-mnist";
  EXPECT_THAT(refusal(args),
              AllOf(HasSubstr("[step.costs]"), HasSubstr("blocks; legal")));
}

// Blocks are run here; links, all of them, are those of the file.
TEST_F(StepCommand, ATableOfLinksAloneReplacesTheGuess) {
  StepArgs args = small_mlp();
  args.costs = path("links.csv");
  const auto costs_with = [&](const std::string& rows) {
    write_file_atomically(args.costs,
                          "what,name,fixed_us,per_sample_us,gb_per_s,hidden\n" + rows);
    return view_step(args, test::recipes()).costs;
  };
  const CostTable costs = costs_with("ranks_per_node,2,,,,\nlink,dp@nodes,70,,,\n");
  EXPECT_EQ(costs.links.size(), 1u);
  EXPECT_EQ(costs.ranks_per_node, 2);
  EXPECT_FALSE(costs.blocks.empty());
  EXPECT_GT(costs.update.latency, 0);
  EXPECT_EQ(view_step(args, test::recipes()).costs_from,
            "links of " + args.costs +
                "; else blocks run here on a few samples, in float32 with 1 thread");
  write_file_atomically(
      args.costs, "what,name,fixed_us,per_sample_us,gb_per_s,hidden\nlink,tp,5,,,\n");
  EXPECT_THAT(refusal(args), HasSubstr("no row for Reduce of group dp"));
}

// One of them is run; the first block and the last are like no other.
TEST_F(StepCommand, BlocksOfOneFormTakeOneTime) {
  StepArgs args = small_mlp();
  args.set.push_back("model.depth=6");
  const std::vector<BlockCost> blocks = view_step(args, test::recipes()).costs.blocks;
  ASSERT_EQ(blocks.size(), 7u);
  for (size_t b = 2; b + 1 < blocks.size(); ++b) EXPECT_EQ(blocks[b], blocks[1]) << b;
}

TEST_F(StepCommand, LargeBlocksAreNotRun) {
  const StepArgs args{.recipe = "gpt",
                      .ranks = "16",
                      .layout = "dp=4,tp=2,pp=2,shard=1",
                      .set = {"model.size=7B", "model.depth=2"}};
  const StepView view = view_step(args, test::recipes());
  ASSERT_EQ(view.costs.blocks.size(), 4u);
  EXPECT_THAT(view.costs_from, HasSubstr("blocks by their FLOPs at "));
  for (const auto& block : view.costs.blocks) {
    EXPECT_GT(block.forward.per_sample, 0);
    EXPECT_EQ(block.backward.per_sample, 2 * block.forward.per_sample);
  }
}

// What a machine that nobody has here would take is said to be just that.
TEST_F(StepCommand, PublishedLinksReplaceTheGuessAndSayThatNothingWasRun) {
  StepArgs args = small_mlp();
  args.links = "nvlink4-ndr";
  const StepView view = view_step(args, test::recipes());
  EXPECT_THAT(view.costs_from,
              AllOf(HasSubstr("links published: NVLink 4"), HasSubstr("; not run"),
                    Not(HasSubstr("guessed"))));
  EXPECT_EQ(view.costs.ranks_per_node, 8);
  args.links = "nvlink5";
  EXPECT_THAT(refusal(args), HasSubstr("unknown links 'nvlink5'; nearest: nvlink4"));
}

TEST_F(StepCommand, RefusesInOneLine) {
  StepArgs args = small_mlp();
  args.set.push_back("memory.limit=1K");
  EXPECT_THAT(refusal(args), AllOf(HasSubstr("[step.check] role"), HasSubstr("limit")));
  args = small_mlp();
  args.layout = "tp=3";
  EXPECT_THAT(refusal(args),
              HasSubstr("tp=3: the layers of mlp cannot be cut; legal: tp=1"));
  args = small_mlp();
  args.ranks = "9";
  EXPECT_THAT(refusal(args), HasSubstr("9 data-parallel ranks for 4 slices"));
  write_file_atomically(path("bad.csv"), "role,ranks\n0,0\n");
  EXPECT_THAT(refusal({.from = path("bad.csv")}),
              HasSubstr("column slices is missing"));
  EXPECT_THAT(refusal({.from = path("none.csv")}), HasSubstr("none.csv"));
  EXPECT_THAT(refusal({}), HasSubstr("RECIPE"));
}

// Twice the samples: twice the activations, and about as much state.
TEST_F(StepCommand, ActivationsGrowWithTheBatch) {
  StepArgs args = small_mlp();
  const MemoryParts once = view_step(args, test::recipes()).report.largest().parts;
  args.set.push_back("batch=24");
  const MemoryParts twice = view_step(args, test::recipes()).report.largest().parts;
  EXPECT_EQ(once.state, twice.state);
  EXPECT_NEAR(static_cast<double>(twice.activations),
              2 * static_cast<double>(once.activations),
              0.2 * static_cast<double>(once.activations));
}

TEST_F(StepCommand, RecomputesTheBlocksThatAreChosen) {
  StepArgs args = small_mlp();  // three blocks; at most two slices per rank
  args.svg = path("some.svg");
  args.set.push_back("step.recompute=every=2");
  EXPECT_THAT(shown(args), HasSubstr("Recompute 4,"));
  const std::string svg = read_file(args.svg, ErrorKind::kConfig);
  EXPECT_THAT(svg, HasSubstr("Recompute"));
  for (const char* all : {"step.recompute=all", "step.recompute=true"}) {
    args.set.back() = all;
    EXPECT_THAT(shown(args), HasSubstr("Recompute 6,")) << all;
  }
  args.set.back() = "step.recompute=false";
  EXPECT_THAT(shown(args), testing::Not(HasSubstr("Recompute")));
  args.set.back() = "step.recompute=blocks=3";
  EXPECT_THAT(refusal(args), HasSubstr("names block 3; legal: 0 to 2"));
  args.set.back() = "step.recompute=some";
  EXPECT_THAT(refusal(args), HasSubstr("step.recompute is 'some'; legal: none, all"));
}

TEST_F(StepCommand, OrdersAndCutsAPipelineAsAsked) {
  StepArgs args = small_mlp();  // three blocks
  args.layout = "pp=2";
  args.ranks = "2";
  args.set.push_back("pipeline.schedule=zero-bubble");
  EXPECT_THAT(shown(args), HasSubstr("BackwardWeight"));
  args.set.push_back("pipeline.cut=0,1-2");
  EXPECT_THAT(shown(args), HasSubstr("stages   pipeline.cut=0,1-2: 0 | 3 6"));
  args.set.back() = "pipeline.cut=0-1,2";
  EXPECT_THAT(shown(args), HasSubstr("stages   pipeline.cut=0-1,2: 0 3 | 6"));
  args.set.back() = "pipeline.cut=0,1";
  EXPECT_THAT(refusal(args),
              HasSubstr("ends with block 1, and the model with block 2"));
  args.set = {"pipeline.schedule=interleaved"};
  EXPECT_THAT(refusal(args), HasSubstr("the model has 3 blocks"));
  args.set = {"pipeline.virtual=2"};
  EXPECT_THAT(refusal(args), HasSubstr("legal: 1, or pipeline.schedule=interleaved"));
}

// A table in which each of so many blocks takes a second forward and two backward, and
// one of them ten times as long.
std::string table_of(int blocks, int long_block = -1) {
  std::string out =
      "what,name,fixed_us,per_sample_us,gb_per_s,hidden\nsamples,1,,,,\nlink,*,,,,\n";
  for (int b = 0; b < blocks; ++b) {
    const int times = b == long_block ? 10 : 1;
    out += text("forward,", b, ",", times * 1'000'000, ",,,\nbackward,", b, ",",
                times * 2'000'000, ",,,\n");
  }
  return out;
}

TEST_F(StepCommand, CutsAPipelineByTheSecondsOfATable) {
  StepArgs args = small_mlp();  // three blocks
  args.layout = "pp=2";
  args.ranks = "2";
  const std::string file = path("costs.csv");
  args.set.push_back("pipeline.costs=" + file);
  const auto with_table = [&](const std::string& table) {
    write_file_atomically(file, table);
    return refusal(args) == "no error" ? shown(args) : refusal(args);
  };
  EXPECT_THAT(with_table(table_of(3, /*long_block=*/0)),
              HasSubstr("stages   pipeline.cut=0,1-2: 0 | 3 6"));
  EXPECT_THAT(with_table(table_of(3, /*long_block=*/2)),
              HasSubstr("stages   pipeline.cut=0-1,2: 0 3 | 6"));
  EXPECT_THAT(with_table(table_of(4)),
              HasSubstr("pipeline.costs=" + file +
                        " has 4 blocks, and the model 3; legal: a table"));
  EXPECT_THAT(with_table(table_of(0)),
              HasSubstr("pipeline.costs=" + file + " has no blocks; legal: "));
  EXPECT_THAT(with_table("nothing"), HasSubstr("[step.costs] line 1"));
}

TEST_F(StepCommand, SlowPlacesTakeLonger) {
  StepArgs args = small_mlp();
  args.layout = "pp=2";
  args.ranks = "2";
  args.costs = path("costs.csv");
  write_file_atomically(args.costs, table_of(3));
  args.set.push_back("pipeline.costs=" + args.costs);
  args.set.push_back("pipeline.speeds=2,1");
  const StepView view = view_step(args, test::recipes());
  EXPECT_EQ(view.schedule.stages[0].blocks.size(), 2u);
  // Four slices of 3 s each: two blocks, or one at half the speed.
  EXPECT_NEAR(view.simulation.roles[0].compute, 4 * 2 * 3, 1e-3);
  EXPECT_NEAR(view.simulation.roles[1].compute, 4 * 2 * 3, 1e-3);
  EXPECT_EQ(view.costs.blocks[2].forward.fixed, 1);  // for a table, as it was
}

}  // namespace
}  // namespace cohort::cli
