// SPDX-License-Identifier: Apache-2.0
#include "cohort/observe/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace cohort {
namespace {

using nlohmann::json;

std::vector<RankSpans> two_ranks() {
  const SpanRecord early{
      .name = "forward", .start_ns = 5'000'000'001, .duration_ns = 1'500, .step = 2};
  const SpanRecord late{.name = "re\"duce",
                        .start_ns = 5'000'012'346,
                        .duration_ns = 7,
                        .id = 3,
                        .bytes = 4096};
  return {{0, "", {{"compute", {early}}, {"group 0", {late}}}},
          {2, "host b", {{"compute", {late}}}}};
}

std::vector<json> events_of(const json& trace, const std::string& phase) {
  std::vector<json> events;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase) events.push_back(event);
  }
  return events;
}

TEST(Trace, SpansBecomeCompleteEvents) {
  const json trace = json::parse(trace_json(two_ranks()));
  EXPECT_EQ(trace.at("baseTimeNanoseconds"), 5'000'000'001);
  const auto events = events_of(trace, "X");
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0], json::parse(R"({"ph":"X","name":"forward","cat":"compute",
      "pid":0,"tid":0,"ts":0.0,"dur":1.5,"args":{"step":2}})"));
  EXPECT_EQ(events[1], json::parse(R"({"ph":"X","name":"re\"duce","cat":"group 0",
      "pid":0,"tid":1,"ts":12.345,"dur":0.007,"args":{"id":3,"bytes":4096}})"));
  EXPECT_EQ(events[2].at("pid"), 2);
}

TEST(Trace, RanksAndLanesAreNamed) {
  const auto names = events_of(json::parse(trace_json(two_ranks())), "M");
  ASSERT_EQ(names.size(), 2u * 2 + 3 * 2);
  EXPECT_EQ(names[0].at("args").at("name"), "rank 0");
  EXPECT_EQ(names[2].at("args").at("name"), "compute");
  EXPECT_EQ(names[4].at("args").at("name"), "group 0");
  EXPECT_EQ(names[4].at("tid"), 1);
  EXPECT_EQ(names[6].at("args").at("name"), "rank 2 host b");
}

TEST(Trace, AnEmptyTraceIsLegal) {
  EXPECT_TRUE(json::parse(trace_json({})).at("traceEvents").empty());
}

}  // namespace
}  // namespace cohort
