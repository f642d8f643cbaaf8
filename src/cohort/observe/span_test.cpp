// SPDX-License-Identifier: Apache-2.0
#include "cohort/observe/span.h"

#include <gtest/gtest.h>

#include <thread>

#include "cohort/core/error.h"

namespace cohort {
namespace {

using namespace std::chrono_literals;

TEST(Span, OffByDefault) {
  VirtualClock clock;
  SpanRecorder recorder(clock);
  { Span span(recorder.lane("compute"), {.name = "forward"}); }
  ASSERT_EQ(recorder.snapshot().size(), 1u);
  EXPECT_TRUE(recorder.snapshot()[0].spans.empty());
}

TEST(Span, RecordsItsScope) {
  VirtualClock clock;
  SpanRecorder recorder(clock);
  recorder.enable();
  const auto begin = clock.now();
  {
    Span span(recorder.lane("group 0"), {.name = "reduce", .step = 3, .id = 4});
    clock.advance(250us);
    span.set_bytes(1024);
  }
  const auto spans = recorder.lane("group 0").snapshot();
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_STREQ(spans[0].name, "reduce");
  EXPECT_EQ(spans[0].start_ns, begin.time_since_epoch().count());
  EXPECT_EQ(spans[0].duration_ns, 250'000);
  EXPECT_EQ(spans[0].step, 3);
  EXPECT_EQ(spans[0].id, 4);
  EXPECT_EQ(spans[0].bytes, 1024);
}

TEST(Span, ASpanThatBeganWhileOffIsNotRecorded) {
  VirtualClock clock;
  SpanRecorder recorder(clock);
  {
    Span span(recorder.lane("a"), {.name = "x"});
    recorder.enable();
  }
  EXPECT_TRUE(recorder.lane("a").snapshot().empty());
}

TEST(Span, TheRingKeepsTheNewestInOrder) {
  VirtualClock clock;
  SpanRecorder recorder(clock, 3);
  auto& lane = recorder.lane("a");
  for (int64_t added = 1; added <= 8; ++added) {
    lane.add({.name = "x", .id = added});
    const auto spans = lane.snapshot();
    const int64_t kept = std::min<int64_t>(added, 3);
    ASSERT_EQ(static_cast<int64_t>(spans.size()), kept);
    for (int64_t i = 0; i < kept; ++i) EXPECT_EQ(spans[i].id, added - kept + 1 + i);
    EXPECT_EQ(lane.dropped(), added - kept);
  }
  recorder.clear();
  EXPECT_TRUE(lane.snapshot().empty());
  EXPECT_EQ(lane.dropped(), 0);
}

TEST(Span, LanesAndNamesAreKeptOnce) {
  VirtualClock clock;
  SpanRecorder recorder(clock);
  auto* first = &recorder.lane("a");
  const char* name = recorder.intern(std::string("block 7"));
  for (int i = 0; i < 100; ++i) {
    recorder.lane(text("b", i));
    recorder.intern(text("n", i));
  }
  EXPECT_EQ(&recorder.lane("a"), first);
  EXPECT_EQ(recorder.intern("block 7"), name);
  EXPECT_STREQ(name, "block 7");
  EXPECT_EQ(recorder.snapshot().size(), 101u);
}

TEST(Span, ThreadsRecordSideBySideWhileOneLooks) {
  RealClock clock;
  SpanRecorder recorder(clock, 64);
  recorder.enable();
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        auto& lane = recorder.lane(text("lane ", t));
        for (int i = 0; i < 1000; ++i) Span span(lane, {.name = "x", .id = i});
      });
    }
    for (int i = 0; i < 50; ++i) recorder.snapshot();
  }
  for (const auto& lane : recorder.snapshot()) {
    ASSERT_EQ(lane.spans.size(), 64u);
    EXPECT_EQ(lane.spans.back().id, 999);
  }
}

}  // namespace
}  // namespace cohort
