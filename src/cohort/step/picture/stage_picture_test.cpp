// SPDX-License-Identifier: Apache-2.0
// Pictures of pipelines, whose rows are stages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "cohort/core/error.h"
#include "cohort/step/picture/renderer.h"
#include "cohort/step/picture/testing_picture.h"
#include "cohort/step/picture/testing_stage_picture.h"
#include "cohort/step/simulator.h"
#include "cohort/step/testing_golden.h"

namespace cohort {
namespace {

using test::drawn_pipeline;
using test::drawn_pipelines;
using test::DrawnPipeline;
using test::eight_of_32;
using test::interleaved_stages;
using test::kTransfer;
using test::make;
using test::overlaps;
using test::read_picture;
using test::ShownCell;
using test::ShownPicture;
using test::ShownText;
using test::unit_times;
using test::zero_bubble_of_tensors;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

ShownPicture shown_pipeline(const DrawnPipeline& example) {
  return read_picture(drawn_pipeline(example));
}

TEST(StagePicture, PicturesInTheDocsAreWhatItDraws) {
  for (const auto& example : drawn_pipelines()) {
    const std::string svg = drawn_pipeline(example);
    EXPECT_LT(svg.size(), 400'000u) << example.file;
    test::expect_golden(text("docs/pictures/", example.file), svg);
  }
}

TEST(StagePicture, EveryActionThatTakesTimeHasACell) {
  for (const auto& example : drawn_pipelines()) {
    const Schedule schedule = make(example.pipe);
    const StepTimes times = unit_times(schedule, kTransfer);
    const ShownPicture picture = shown_pipeline(example);
    for (size_t r = 0; r < schedule.roles.size(); ++r) {
      std::multiset<int> expected, found;
      for (size_t i = 0; i < times[r].size(); ++i)
        if (times[r][i].end > times[r][i].begin) expected.insert(static_cast<int>(i));
      for (const auto& cell : picture.cells_of(text("role", r, "p")))
        found.insert(cell.action);
      EXPECT_EQ(found, expected) << example.file << ", role " << r;
    }
  }
}

TEST(StagePicture, TextsAreLegibleAndApart) {
  for (const auto& example : drawn_pipelines()) {
    const ShownPicture picture = shown_pipeline(example);
    EXPECT_THAT(overlaps(picture), IsEmpty()) << example.file;
    for (const ShownText& shown : picture.texts) {
      EXPECT_GE(shown.size, 9) << shown.words;
      EXPECT_GE(shown.left, 0) << shown.words;
      EXPECT_LE(shown.right, picture.width) << shown.words;
    }
  }
}

TEST(StagePicture, EightStagesOf32SlicesFitOnAPage) {
  const ShownPicture picture = shown_pipeline(eight_of_32());
  EXPECT_LE(picture.width, 1680);
  EXPECT_LE(picture.height, picture.width * 0.8);
}

TEST(StagePicture, CellsHaveTheNumberOfTheirSlice) {
  const ShownPicture picture = shown_pipeline(eight_of_32());
  int numbered = 0;
  for (const ShownCell& cell : picture.cells) {
    if (!cell.tip.starts_with("Forward") && !cell.tip.starts_with("Backward")) continue;
    const std::string slice = cell.tip.substr(
        cell.tip.find("slice ") + 6, cell.tip.find(':') - cell.tip.find("slice ") - 6);
    numbered += std::any_of(
        picture.texts.begin(), picture.texts.end(), [&](const ShownText& shown) {
          return shown.words == slice && shown.left >= cell.x - 0.01 &&
                 shown.right <= cell.x + cell.width + 0.01 && shown.y > cell.y &&
                 shown.y < cell.y + cell.height;
        });
  }
  EXPECT_EQ(numbered, 8 * 32 * 2);
}

// Rows are ordered by stage whatever the order of roles.
TEST(StagePicture, BandsAreInTheOrderOfStages) {
  Schedule schedule = make(eight_of_32().pipe);
  std::reverse(schedule.roles.begin(), schedule.roles.end());
  const ShownPicture picture =
      read_picture(render_svg(schedule, unit_times(schedule, 0)));
  std::vector<ShownText> names;
  for (const auto& shown : picture.texts)
    if (shown.css == " name ") names.push_back(shown);
  ASSERT_EQ(names.size(), 8u);
  for (size_t s = 0; s < names.size(); ++s) {
    EXPECT_THAT(names[s].words, HasSubstr(text("stage ", s, " | rank ", s, " ")));
    if (s > 0) {
      EXPECT_GT(names[s].y, names[s - 1].y);
    }
  }
}

// Ranks that do the same share their rows, also where there are few.
TEST(StagePicture, ABandIsARole) {
  const Schedule schedule = make({.places = 2,
                                  .replicas = 2,
                                  .tensor = 2,
                                  .slices = 8,
                                  .ends = {2, 4},
                                  .order = test::one_forward_one_backward});
  const ShownPicture picture =
      read_picture(render_svg(schedule, unit_times(schedule, 0)));
  EXPECT_THAT(picture.words_of("name"),
              ElementsAre(HasSubstr("stage 0 | ranks 0-3 | blocks 0-1 | 4 slices each"),
                          HasSubstr("stage 1 | ranks 4-7 | blocks 2-3 |")));
}

// Ranks with fewer slices have rows of their own, at the same stage.
TEST(StagePicture, UnevenRanksOfAStageStandTogether) {
  const Schedule schedule = make({.places = 3,
                                  .replicas = 2,
                                  .slices = 5,
                                  .ends = {1, 2, 3},
                                  .order = test::gpipe});
  const ShownPicture picture =
      read_picture(render_svg(schedule, unit_times(schedule, 0)));
  EXPECT_THAT(
      picture.words_of("name"),
      ElementsAre(HasSubstr("stage 0 | rank 0 | block 0 | 2 slices"),
                  HasSubstr("stage 0 | rank 1 | block 0 | 3 slices"),
                  HasSubstr("stage 1 | rank 2"), HasSubstr("stage 1 | rank 3"),
                  HasSubstr("stage 2 | rank 4"), HasSubstr("stage 2 | rank 5")));
}

// (p - 1) / (m + p - 1) of the time, if nothing but computation takes any.
TEST(StagePicture, IdleSharesAreRight) {
  const Schedule schedule = make(eight_of_32().pipe);
  const ShownPicture even = read_picture(render_svg(schedule, unit_times(schedule, 0)));
  for (const auto& words : even.words_of("name"))
    EXPECT_THAT(words, HasSubstr(" | idle 18 %"));
  EXPECT_THAT(even.words_of("under"), ElementsAre(HasSubstr("idle 18 %")));

  // The middle stage has four blocks of six.
  const Schedule uneven = make({.places = 3,
                                .slices = 2,
                                .ends = {1, 5, 6},
                                .order = test::one_forward_one_backward});
  const StepTimes times = unit_times(uneven, 0);
  const ShownPicture picture = read_picture(render_svg(uneven, times));
  const auto names = picture.words_of("name");
  ASSERT_EQ(names.size(), 3u);
  const double step = step_seconds(times);
  for (size_t s = 0; s < 3; ++s) {
    const double busy = s == 1 ? 2 * 12e-3 : 2 * 3e-3;
    EXPECT_THAT(names[s], HasSubstr(text(" | idle ",
                                         std::lround(100 * (1 - busy / step)), " %")));
  }
}

// Where a rank computes nothing, and only there, the rows say so.
TEST(StagePicture, TheBubbleIsDrawn) {
  const Schedule schedule = make(interleaved_stages().pipe);
  const StepTimes times = unit_times(schedule, kTransfer);
  const ShownPicture picture = shown_pipeline(interleaved_stages());
  for (size_t r = 0; r < schedule.roles.size(); ++r) {
    double idle = 0, busy = 0;
    for (const auto& cell : picture.cells)
      if (cell.group == text("role", r, "p") && cell.tip.starts_with("idle"))
        idle += cell.width;
    for (size_t i = 0; i < times[r].size(); ++i)
      if (schedule.roles[r].actions[i].lane == kComputeLane)
        busy += times[r][i].end - times[r][i].begin;
    double left = 1e9, right = 0;
    for (const auto& cell : picture.cells) {
      left = std::min(left, cell.x);
      right = std::max(right, cell.x + cell.width);
    }
    EXPECT_NEAR(idle / (right - left), 1 - busy / step_seconds(times), 0.01);
  }
}

TEST(StagePicture, RowsAreTheChannelsThatAStageUses) {
  const ShownPicture picture = shown_pipeline(eight_of_32());
  const auto rows = [&](const char* group) {
    std::vector<std::string> names;
    for (const auto& shown : picture.texts)
      if (shown.group == group && shown.css.find(" end ") != std::string::npos)
        names.push_back(shown.words);
    return names;
  };
  EXPECT_THAT(rows("role0p"), ElementsAre("compute", "all", "0>1", "1>0", "memory"));
  EXPECT_THAT(rows("role3p"),
              ElementsAre("compute", "all", "2>3", "3>2", "3>4", "4>3", "memory"));
}

// A row for each run of blocks at a place.
TEST(StagePicture, InterleavedStagesHaveARowEach) {
  const ShownPicture picture = shown_pipeline(interleaved_stages());
  std::map<std::string, double> rows;
  for (const auto& shown : picture.texts)
    if (shown.group == "role1p") rows[shown.words] = shown.y;
  ASSERT_TRUE(rows.contains("blocks 2-3"));
  ASSERT_TRUE(rows.contains("blocks 10-11"));
  EXPECT_GT(rows["blocks 10-11"] - rows["blocks 2-3"], 10);
  std::map<std::string, std::set<double>> tops;  // by block
  for (const auto& cell : picture.cells_of("role1p"))
    if (cell.tip.find(" block ") != std::string::npos)
      tops[cell.tip.substr(cell.tip.find(" block "),
                           cell.tip.find(',') - cell.tip.find(" block "))]
          .insert(cell.y);
  ASSERT_EQ(tops.size(), 4u);
  EXPECT_EQ(tops[" block 2"], tops[" block 3"]);
  EXPECT_EQ(tops[" block 10"], tops[" block 11"]);
  EXPECT_EQ(tops[" block 2"].size(), 1u);
  EXPECT_LT(*tops[" block 2"].begin(), *tops[" block 10"].begin());
}

int ticks_of(const ShownPicture& picture) {
  int ticks = 0;
  for (const auto& path : picture.paths)
    if (path.starts_with("calls"))
      ticks += static_cast<int>(std::count(path.begin(), path.end(), 'M'));
  return ticks;
}

// Calls inside a block are ticks in its cell, and no row.
TEST(StagePicture, InnerCallsAreMarkedWhereTheyAreMade) {
  const Schedule schedule = make(zero_bubble_of_tensors().pipe);
  size_t calls = 0;
  for (const auto& role : schedule.roles)
    for (const auto& action : role.actions) calls += action.calls.size();
  const ShownPicture picture = shown_pipeline(zero_bubble_of_tensors());
  EXPECT_EQ(ticks_of(picture), static_cast<int>(calls) + 2);  // two in the legend
  EXPECT_THAT(picture.words_of("soft"), Contains("calls inside a block (tp)"));
  for (const auto& shown : picture.texts) EXPECT_NE(shown.words, "tp");
  EXPECT_EQ(ticks_of(shown_pipeline(eight_of_32())), 0);
}

TEST(StagePicture, InnerCallsAreMarkedWithoutStagesToo) {
  const Schedule schedule =
      make({.places = 1, .tensor = 2, .slices = 2, .ends = {4}, .order = test::gpipe});
  const ShownPicture picture =
      read_picture(render_svg(schedule, unit_times(schedule, 0)));
  EXPECT_THAT(picture.words_of("name"), ElementsAre("rank 0", "rank 1"));
  EXPECT_EQ(ticks_of(picture), 4 * 2 * 2 * 2 + 2);
  EXPECT_THAT(overlaps(picture), IsEmpty());
}

// Also where one place has both parts of a backward, and no call inside a block.
TEST(StagePicture, PatternsThatAreUsedAreThere) {
  const Schedule schedule =
      make({.places = 1, .slices = 3, .ends = {2}, .order = test::zero_bubble});
  const std::string svg = render_svg(schedule, unit_times(schedule, 0));
  EXPECT_THAT(svg, HasSubstr("url(#weights)"));
  EXPECT_THAT(svg, HasSubstr("id=\"weights\""));
}

struct CellColour {
  int red, green, blue;
};
CellColour rgb_of(const std::string& fill) {
  const auto part = [&](size_t at) {
    return static_cast<int>(std::strtol(fill.substr(at, 2).c_str(), nullptr, 16));
  };
  return {part(1), part(3), part(5)};
}
int distance_of(const std::string& one, const std::string& other) {
  const CellColour a = rgb_of(one), b = rgb_of(other);
  return std::abs(a.red - b.red) + std::abs(a.green - b.green) +
         std::abs(a.blue - b.blue);
}

TEST(StagePicture, SlicesAndKindsAreToldApart) {
  std::map<std::string, std::map<int, std::string>> fills;  // by kind and slice
  for (const auto& example : drawn_pipelines())
    for (const auto& cell : shown_pipeline(example).cells)
      if (cell.tip.find(" slice ") != std::string::npos)
        fills[cell.tip.substr(0, cell.tip.find(' '))]
             [std::atoi(cell.tip.c_str() + cell.tip.find(" slice ") + 7)] = cell.fill;
  EXPECT_EQ(fills["Forward"].size(), 32u);
  for (const auto& [kind, by_slice] : fills)
    for (auto it = by_slice.begin(); std::next(it) != by_slice.end(); ++it)
      EXPECT_GT(distance_of(it->second, std::next(it)->second), 50) << kind;
  const std::vector<std::string> kinds = {"Forward", "BackwardInput", "BackwardWeight",
                                          "Recompute"};
  for (size_t a = 0; a < kinds.size(); ++a)
    for (size_t b = a + 1; b < kinds.size(); ++b)
      for (int slice = 0; slice < 8; ++slice)
        EXPECT_GT(distance_of(fills[kinds[a]][slice], fills[kinds[b]][slice]), 50)
            << kinds[a] << ' ' << kinds[b] << ' ' << slice;
  for (int slice = 0; slice < 8; ++slice)
    EXPECT_GT(distance_of(fills["Forward"][slice], fills["Backward"][slice]), 50);
}

// Files without bytes are drawn, too: there is no curve then.
TEST(StagePicture, NoMemoryIsNoRow) {
  Schedule schedule = make({.ends = {1, 2}, .order = test::one_forward_one_backward});
  schedule.buffers.clear();
  for (auto& role : schedule.roles)
    for (auto& action : role.actions) action.bytes = 0;
  const ShownPicture picture =
      read_picture(render_svg(schedule, unit_times(schedule, kTransfer)));
  EXPECT_THAT(picture.words_of("soft"), Not(Contains("memory")));
  EXPECT_THAT(picture.words_of("under"), ElementsAre(Not(HasSubstr("peak"))));
}

TEST(StagePicture, AllThatWasMeasuredStandsBelowAllThatIsForetold) {
  const Schedule schedule =
      make({.places = 3, .ends = {1, 2, 3}, .order = test::one_forward_one_backward});
  const StepTimes times = unit_times(schedule, kTransfer);
  StepTimes measured = times;
  for (auto& role : measured)
    for (auto& time : role) time = {time.begin * 2, time.end * 2};
  const ShownPicture picture =
      read_picture(render_svg(schedule, times, {.measured = measured}));
  const auto names = picture.words_of("name");
  ASSERT_EQ(names.size(), 6u);
  for (int stage = 0; stage < 3; ++stage) {
    const std::string name = text("stage ", stage, " | rank ", stage);
    EXPECT_THAT(names[stage], HasSubstr(name + " | predicted |"));
    EXPECT_THAT(names[3 + stage], HasSubstr(name + " | measured |"));
  }
  EXPECT_THAT(overlaps(picture), IsEmpty());
}

}  // namespace
}  // namespace cohort
