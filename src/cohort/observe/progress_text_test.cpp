// SPDX-License-Identifier: Apache-2.0
#include "cohort/observe/progress_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace cohort {
namespace {

using testing::HasSubstr;
using testing::Not;

ProgressState some_state() {
  return {.label = "epoch 2/10",
          .done = 394,
          .total = 938,
          .elapsed_s = 12.5,
          .steps_per_second = 32,
          .samples_per_second = 857.3,
          .loss = 0.5321};
}

// Columns of UTF-8 text whose characters are one column wide.
int columns(const std::string& line) {
  return static_cast<int>(std::ranges::count_if(
      line, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

bool is_ascii(const std::string& line) {
  return std::ranges::all_of(
      line, [](char c) { return static_cast<unsigned char>(c) < 128; });
}

TEST(ProgressText, LineHasPercentBarTimesRateAndLoss) {
  EXPECT_EQ(progress_line(some_state(), {.width = 77, .ascii = true}),
            "epoch 2/10:  42%|####      | 394/938 [00:12<00:17, 857 samples/s, loss "
            "0.532]");
}

TEST(ProgressText, LineIsExactlyAsWideAsTheTerminal) {
  for (int width = 75; width <= 200; ++width) {
    EXPECT_EQ(columns(progress_line(some_state(), {.width = width, .ascii = true})),
              width);
    EXPECT_EQ(columns(progress_line(some_state(), {.width = width, .ascii = false})),
              width);
  }
}

TEST(ProgressText, ANarrowTerminalLosesTheBarThenTheEnd) {
  const auto line = progress_line(some_state(), {.width = 69, .ascii = false});
  EXPECT_THAT(line, Not(HasSubstr("|")));
  EXPECT_THAT(line, HasSubstr("42% 394/938 ["));
  for (int width : {0, 1, 20, 40}) {
    EXPECT_EQ(columns(progress_line(some_state(), {.width = width, .ascii = false})),
              width);
  }
}

TEST(ProgressText, UnknownTotalAndRate) {
  ProgressState state;
  state.done = 5;
  state.elapsed_s = 3;
  EXPECT_EQ(progress_line(state, {.width = 80, .ascii = true}), "5 [00:03]");
  state.total = 10;
  EXPECT_THAT(progress_line(state, {.width = 80, .ascii = true}),
              HasSubstr("5/10 [00:03<?]"));
}

TEST(ProgressText, TheEndIsAHundredPercentAndNoTimeLeft) {
  auto state = some_state();
  state.done = state.total;
  state.steps_per_second = 0;
  const auto line = progress_line(state, {.width = 80, .ascii = true});
  EXPECT_THAT(line, HasSubstr("100%|#############| 938/938 [00:12<00:00"));
  state.done = state.total - 1;  // never says 100 too early
  EXPECT_THAT(progress_line(state, {.width = 80, .ascii = true}), HasSubstr(" 99%|"));
}

TEST(ProgressText, PlainLineHasTheTimeAndNoControlCharacters) {
  const auto noon = std::chrono::system_clock::from_time_t(1700000000);
  EXPECT_EQ(
      plain_line(some_state(), noon),
      "2023-11-14T22:13:20Z epoch 2/10 step 394/938 (42%) loss 0.532 857 samples/s "
      "00:12<00:17");
  EXPECT_EQ(plain_line({}, noon), "2023-11-14T22:13:20Z step 0 00:00");
}

TEST(ProgressText, AsciiMeansAscii) {
  EXPECT_TRUE(is_ascii(progress_line(some_state(), {.width = 100, .ascii = true})));
  EXPECT_FALSE(is_ascii(progress_line(some_state(), {.width = 100})));
}

TEST(SplitTable, SharesAddUpWithBars) {
  const StepSplit split{
      .data = 0.01, .forward = 0.03, .backward = 0.05, .wait = 0, .update = 0.01};
  EXPECT_EQ(split_table(split, {.width = 39, .ascii = true}),
            "data       10.0 ms   10.0 %  #\n"
            "forward    30.0 ms   30.0 %  ###\n"
            "backward   50.0 ms   50.0 %  #####\n"
            "waiting        0 s    0.0 %\n"
            "update     10.0 ms   10.0 %  #\n"
            "step        100 ms\n");
}

TEST(SplitTable, NothingMeasuredIsAllZeros) {
  EXPECT_THAT(split_table({}, {.width = 39, .ascii = true}),
              HasSubstr("forward        0 s    0.0 %\n"));
}

}  // namespace
}  // namespace cohort
