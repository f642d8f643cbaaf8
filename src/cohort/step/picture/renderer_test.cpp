// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/picture/renderer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/core/error.h"
#include "cohort/step/checker.h"
#include "cohort/step/generator.h"
#include "cohort/step/simulator.h"
#include "cohort/step/step_trace.h"
#include "cohort/step/testing_golden.h"

namespace cohort {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kMega = 1'000'000;

// A small convolutional network: few parameters and large activations first, the
// other way round at its end.
std::vector<BlockSpec> network() {
  const struct {
    const char* name;
    int64_t parameters, activations;
  } parts[] = {{"stem", 200'000, 12 * kMega},
               {"stage1", 700'000, 10 * kMega},
               {"stage2", 1'500'000, 6 * kMega},
               {"stage3", 3'000'000, 3 * kMega},
               {"head", 1'200'000, kMega}};
  std::vector<BlockSpec> blocks;
  for (const auto& part : parts)
    blocks.push_back({.name = part.name,
                      .parameters = {{.name = text(part.name, ".weight"),
                                      .shape = {part.parameters},
                                      .end = part.parameters}},
                      .activation_bytes = part.activations,
                      .output_bytes = part.activations / 4,
                      .scratch_bytes = part.activations / 8});
  return blocks;
}

CostTable network_costs() {
  CostTable costs;
  for (double ms : {2.2, 2.6, 2.4, 2.0, 1.0})
    costs.blocks.push_back(
        {{.fixed = ms * 1e-3}, {.fixed = 2 * ms * 1e-3}, {.fixed = ms * 1e-3}});
  costs.update = {.bytes_per_second = 15e9};
  costs.copy = {.latency = 20e-6, .bytes_per_second = 12e9};
  costs.links["*"] = {.latency = 30e-6, .bytes_per_second = 2.5e9};
  return costs;
}

struct Example {
  const char* file;
  const char* title;
  Layout layout;
  GeneratorOptions options;
};

std::vector<Example> examples() {
  return {
      {"data_parallel.svg",
       "Data parallel: dp=2, shard=0",
       {.dp = 2},
       {.slices = 4, .bucket_bytes = 8 * kMega}},
      {"sharded_gradients.svg",
       "Sharded gradients: dp=3, shard=2, 4 slices",
       {.dp = 3, .shard = 2},
       {.slices = 4, .bucket_bytes = 8 * kMega, .clip = true}},
      {"sharded_parameters.svg",
       "Sharded parameters with recompute: dp=2, shard=3",
       {.dp = 2, .shard = 3},
       {.slices = 4, .recompute = true}},
      {"hybrid_offload.svg",
       "Hybrid, state on the host: dp=4, shard=3, replicate=2",
       {.dp = 4, .shard = 3, .replicate = 2},
       {.slices = 8, .vote = true, .offload = true, .memory = MemoryIn::kDevice}},
      {"elastic.svg",
       "Elastic, state kept twice: dp=3, shard=2",
       {.dp = 3, .shard = 2},
       {.slices = 3, .bucket_bytes = 8 * kMega, .elastic = true}},
  };
}

std::string drawn(const Example& example) {
  const Schedule schedule = generate(network(), example.layout, example.options);
  check(schedule);
  return render_svg(schedule, simulate(schedule, network_costs()).times,
                    {.title = example.title});
}

// Opened and closed in the right order: what every reader of SVG insists on.
bool is_balanced(const std::string& svg) {
  std::vector<std::string> open;
  for (size_t at = svg.find('<'); at != std::string::npos; at = svg.find('<', at + 1)) {
    const size_t end = svg.find('>', at);
    if (end == std::string::npos) return false;
    if (svg[end - 1] == '/') continue;
    const bool closing = svg[at + 1] == '/';
    const size_t from = at + (closing ? 2 : 1);
    const std::string name = svg.substr(from, svg.find_first_of(" >", from) - from);
    if (!closing) {
      open.push_back(name);
    } else {
      if (open.empty() || open.back() != name) return false;
      open.pop_back();
    }
  }
  return open.empty();
}

TEST(Renderer, PicturesInTheDocsAreWhatItDraws) {
  for (const auto& example : examples()) {
    const std::string svg = drawn(example);
    EXPECT_TRUE(is_balanced(svg)) << example.file;
    test::expect_golden(text("docs/pictures/", example.file), svg);
  }
}

TEST(Renderer, NamesAreEscaped) {
  auto blocks = network();
  blocks[0].name = "<b>&\"x\"\n\x80";
  const Schedule schedule = generate(blocks, {.dp = 1}, {.slices = 1});
  const std::string svg = render_svg(
      schedule, simulate(schedule, network_costs()).times, {.title = "a < b & c"});
  EXPECT_TRUE(is_balanced(svg));
  EXPECT_THAT(svg, HasSubstr("&lt;b&gt;&amp;&quot;x&quot;??"));
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; c"));
}

TEST(Renderer, NothingComesFromElsewhere) {
  const std::string svg = drawn(examples()[3]);
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_THAT(svg, Not(HasSubstr("@import")));
  EXPECT_THAT(svg, Not(HasSubstr("href=\"http")));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme: dark"));
}

TEST(Renderer, PredictedAndMeasuredAreOnePicture) {
  const Schedule schedule = generate(network(), {.dp = 2}, {.slices = 2});
  const StepTimes times = simulate(schedule, network_costs()).times;
  StepTimes measured = times;
  for (auto& time : measured[0]) time = {time.begin * 2, time.end * 2};
  const std::string svg = render_svg(schedule, times, {.measured = measured});
  EXPECT_THAT(svg, HasSubstr("predicted"));
  EXPECT_THAT(svg, HasSubstr(">measured<"));
  EXPECT_TRUE(is_balanced(svg));
}

TEST(Renderer, ManyRanksAreDrawnAsRoles) {
  const Schedule schedule = generate(network(), {.dp = 100}, {.slices = 150});
  const std::string svg =
      render_svg(schedule, simulate(schedule, network_costs()).times);
  EXPECT_THAT(svg, HasSubstr(">50 ranks<"));
  EXPECT_THAT(svg, Not(HasSubstr(">rank 0<")));
}

TEST(StepTrace, HasALaneAThread) {
  const Schedule schedule = generate(network(), {.dp = 2, .shard = 3}, {.slices = 2});
  const StepTrace trace = trace_of(schedule, simulate(schedule, network_costs()).times);
  ASSERT_EQ(trace.ranks.size(), 2u);
  EXPECT_EQ(trace.ranks[0].lanes[0].lane, "compute");
  EXPECT_EQ(trace.ranks[0].lanes[1].lane, "dp");
  const std::string json = trace_json(trace.ranks);
  EXPECT_THAT(json, HasSubstr("Forward stem slice 0"));
  EXPECT_THAT(json, HasSubstr("ReduceScatter 0"));
}

TEST(StepTrace, MeasuredLanesComeUnderThePredictedOnes) {
  const Schedule schedule = generate(network(), {.dp = 2, .shard = 3}, {.slices = 2});
  const StepTimes times = simulate(schedule, network_costs()).times;
  const StepTrace trace = trace_of(schedule, times, times);
  std::vector<std::string> lanes;
  for (const auto& lane : trace.ranks[0].lanes) lanes.push_back(lane.lane);
  EXPECT_THAT(lanes,
              testing::ElementsAre("compute", "dp", "measured compute", "measured dp"));
}

}  // namespace
}  // namespace cohort
