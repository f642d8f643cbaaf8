// SPDX-License-Identifier: Apache-2.0
// The orders in which places of a pipeline take their slices, and what a user may say
// of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "cohort/core/error.h"
#include "cohort/core/testing_error.h"
#include "cohort/step/generators/turns.h"
#include "cohort/step/pipeline.h"

namespace cohort {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr PipelineOrder kAllOrders[] = {
    PipelineOrder::kGpipe, PipelineOrder::kOneForwardOneBackward,
    PipelineOrder::kInterleaved, PipelineOrder::kZeroBubble};

int stages_at(PipelineOrder order) {
  return order == PipelineOrder::kInterleaved ? 2 : 1;
}

// "F0 F1 B0 B1"; of later stages of a place "f" and "b", of two parts "I" and "W".
std::string written(PipelineOrder order, PipePlace here) {
  here.stages = stages_at(order);
  std::string out;
  for (const Turn& turn : turns_of(order, here)) {
    const bool later = turn.stage >= here.places;
    const char* letter = turn.kind == ActionKind::kForward         ? later ? "f" : "F"
                         : turn.kind == ActionKind::kBackward      ? later ? "b" : "B"
                         : turn.kind == ActionKind::kBackwardInput ? "I"
                                                                   : "W";
    out += text(out.empty() ? "" : " ", letter, turn.round);
  }
  return out;
}

TEST(PipelineOrders, AreThoseOfTheirPapers) {
  const auto at = [](PipelineOrder order, int place, int places, int rounds) {
    return written(order, {.place = place, .places = places, .rounds = rounds});
  };
  using enum PipelineOrder;
  EXPECT_EQ(at(kGpipe, 0, 2, 3), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(at(kGpipe, 1, 2, 3), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(at(kOneForwardOneBackward, 0, 2, 3), "F0 F1 B0 F2 B1 B2");
  EXPECT_EQ(at(kOneForwardOneBackward, 1, 2, 3), "F0 B0 F1 B1 F2 B2");
  EXPECT_EQ(at(kInterleaved, 0, 2, 4),
            "F0 F1 f0 f1 F2 b0 F3 b1 f2 B0 f3 B1 b2 b3 B2 B3");
  EXPECT_EQ(at(kInterleaved, 1, 2, 4),
            "F0 F1 f0 b0 f1 b1 F2 B0 F3 B1 f2 b2 f3 b3 B2 B3");
  EXPECT_EQ(at(kZeroBubble, 0, 3, 4), "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3");
  EXPECT_EQ(at(kZeroBubble, 2, 3, 4), "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3");
}

// Slices that are no multiple of the places, too.
TEST(PipelineOrders, EverySlicePassesEveryStageOnceInOrder) {
  for (const PipelineOrder order : kAllOrders)
    for (const int places : {1, 2, 3, 5})
      for (const int rounds : {1, 2, 5, 8})
        for (int place = 0; place < places; ++place) {
          std::map<std::pair<ActionKind, int>, int> next;  // round, by kind and stage
          const int stages = places > 1 ? stages_at(order) : 1;
          for (const Turn& turn : turns_of(order, {.place = place,
                                                  .places = places,
                                                  .stages = stages,
                                                  .rounds = rounds}))
            EXPECT_EQ(turn.round, (next[{turn.kind, turn.stage}]++));
          for (const auto& [what, count] : next) EXPECT_EQ(count, rounds);
          const int kinds = order == PipelineOrder::kZeroBubble && places > 1 ? 3 : 2;
          EXPECT_EQ(static_cast<int>(next.size()), kinds * stages);
        }
}

// Slices whose forward has run and whose gradients are not whole.
int most_under_way(PipelineOrder order, const PipePlace& here) {
  int now = 0, most = 0;
  for (const Turn& turn : turns_of(order, here)) {
    now += turn.kind == ActionKind::kForward;
    most = std::max(most, now);
    now -= completes_gradients(turn.kind);
  }
  return most;
}

TEST(PipelineOrders, HoldAsManySlicesAsTheyPromise) {
  for (int place = 0; place < 4; ++place) {
    const PipePlace here{.place = place, .places = 4, .rounds = 12};
    EXPECT_EQ(most_under_way(PipelineOrder::kGpipe, here), 12);
    EXPECT_EQ(most_under_way(PipelineOrder::kOneForwardOneBackward, here), 4 - place);
    EXPECT_LE(most_under_way(PipelineOrder::kZeroBubble, here), 4);
    const PipePlace two{.place = place, .places = 4, .stages = 2, .rounds = 12};
    EXPECT_EQ(most_under_way(PipelineOrder::kInterleaved, two), 2 * (3 - place) + 5);
  }
}

TEST(PipelineOptions, AreReadAsWritten) {
  EXPECT_EQ(parse_pipeline({}).order, PipelineOrder::kOneForwardOneBackward);
  EXPECT_EQ(parse_pipeline({}).stages_per_place, 1);
  EXPECT_EQ(parse_pipeline({.schedule = "interleaved"}).stages_per_place, 2);
  EXPECT_EQ(parse_pipeline({.schedule = "interleaved", .stages_per_place = 3})
                .stages_per_place,
            3);
  EXPECT_THAT(parse_pipeline({.cut = "0-3,4,5-6"}).ends, ElementsAre(4, 5, 7));
  EXPECT_THAT(parse_pipeline({.speeds = "1,2.5"}).speeds, ElementsAre(1, 2.5));
}

TEST(PipelineOptions, WhatCannotBeIsRefused) {
  const auto parsed = [](const PipelineText& given) {
    return test::message_of<ConfigError>([&] { parse_pipeline(given); });
  };
  EXPECT_THAT(parsed({.schedule = "zbv"}),
              HasSubstr("legal: gpipe, 1f1b, interleaved, zero-bubble"));
  EXPECT_THAT(parsed({.stages_per_place = 2}),
              HasSubstr("pipeline.virtual=2; legal: 1, or pipeline.schedule=inter"));
  EXPECT_THAT(parsed({.schedule = "interleaved", .stages_per_place = 1}),
              HasSubstr("legal: 2 and more"));
  EXPECT_THAT(parsed({.cut = "0-3,5-7"}),
              HasSubstr("has block 5 where block 4 comes; legal: auto, or the blocks"));
  EXPECT_THAT(parsed({.cut = "0-3,x"}), HasSubstr("has a stage 'x'"));
  EXPECT_THAT(parsed({.cut = ""}), HasSubstr("has no stage"));
  EXPECT_THAT(parsed({.speeds = "1,0"}), HasSubstr("has '0'; legal: a number above 0"));
  EXPECT_THAT(parsed({.cut = "0,1", .speeds = "1,2"}), HasSubstr("one of them"));

  const auto needed = [](int blocks, int places, const PipelineText& given) {
    return test::message_of<ConfigError>(
        [&] { require_stages(blocks, places, parse_pipeline(given)); });
  };
  EXPECT_EQ(needed(4, 2, {.cut = "0-2,3"}), "no error");
  EXPECT_EQ(needed(1, 1, {.schedule = "interleaved"}), "no error");
  EXPECT_THAT(needed(4, 2, {.cut = "0,1,2-3"}),
              HasSubstr("has 3 stages, and pp=2 needs 2; legal: auto, or 2 of them"));
  EXPECT_THAT(needed(5, 2, {.cut = "0-2,3"}),
              HasSubstr("ends with block 3, and the model with block 4"));
  EXPECT_THAT(needed(5, 3, {.schedule = "interleaved"}),
              HasSubstr("pp=3 and pipeline.virtual=2: the model has 5 blocks, which is "
                        "no stage for each; legal: pp=1 to 2"));
  EXPECT_THAT(needed(4, 2, {.speeds = "1,1,2"}),
              HasSubstr("has 3 numbers, and pp=2 as many places; legal: 2 of them"));
}

}  // namespace
}  // namespace cohort
