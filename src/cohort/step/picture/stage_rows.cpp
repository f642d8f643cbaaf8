// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/picture/stage_rows.h"

#include <algorithm>
#include <map>
#include <set>

#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/step/picture/action_look.h"

namespace cohort {
namespace {

constexpr double kOneRun = 24, kOfTwoRuns = 17, kOfMoreRuns = 13;
constexpr double kRunGap = 1;
constexpr double kGroupHeight = 12;
constexpr double kLinkHeight = 7;  // with the gap, a row of the smallest letters
constexpr double kRowGap = 3;
constexpr double kMemorySpace = 4;
constexpr double kCurveHeight = 28;
constexpr double kNotch = 3.5;
constexpr double kSmallDigit = 5.75, kDigit = 6.4;  // at 9 and 10 pixels, if wide
constexpr double kThinnestCell = 1.2;
constexpr double kSeam = 0.4;  // cells of a turn overlap: else the page shines through

bool is_block_work(const Action& action) {
  return action.lane == kComputeLane && action.block >= 0 &&
         action.kind != ActionKind::kFree;
}

int run_of(const std::vector<BlockRun>& runs, const Action& action) {
  if (!is_block_work(action)) return kNone;
  for (size_t r = 0; r < runs.size(); ++r)
    if (action.block >= runs[r].first && action.block <= runs[r].last)
      return static_cast<int>(r);
  return kNone;
}

double run_height(size_t runs) {
  if (runs <= 1) return kOneRun;
  return runs == 2 ? kOfTwoRuns : kOfMoreRuns;
}

std::string rectangle(const Svg::Box& box) {
  return text("M", svg_number(box.x), " ", svg_number(box.y), "h",
              svg_number(box.width), "v", svg_number(box.height), "h",
              svg_number(-box.width), "z");
}

}  // namespace

std::string BlockRun::text() const {
  return first == last ? cohort::text("block ", first)
                       : cohort::text("blocks ", first, "-", last);
}

std::vector<BlockRun> block_runs(const Role& role) {
  std::set<int> blocks;
  for (const auto& action : role.actions)
    if (is_block_work(action)) blocks.insert(action.block);
  std::vector<BlockRun> runs;
  for (int block : blocks) {
    if (!runs.empty() && runs.back().last + 1 == block)
      runs.back().last = block;
    else
      runs.push_back({block, block});
  }
  return runs;
}

std::vector<SliceTurn> slice_turns(const Role& role,
                                   const std::vector<ActionTime>& times) {
  const std::vector<BlockRun> runs = block_runs(role);
  std::vector<SliceTurn> turns;
  for (size_t i = 0; i < role.actions.size(); ++i) {
    const Action& action = role.actions[i];
    if (action.lane != kComputeLane || times[i].end <= times[i].begin) continue;
    const int run = run_of(runs, action);
    const bool same =
        run != kNone && !turns.empty() && turns.back().kind == action.kind &&
        turns.back().slice == action.slice && turns.back().run == run &&
        times[i].begin - turns.back().end <= 0.05 * (times[i].end - times[i].begin);
    if (!same) turns.push_back({action.kind, action.slice, run, {}, times[i].begin, 0});
    turns.back().actions.push_back(i);
    turns.back().end = times[i].end;
  }
  return turns;
}

StageRows::StageRows(const Schedule& schedule, int role,
                     const std::vector<ActionTime>& times, double step_seconds)
    : schedule_(schedule),
      role_(schedule.roles[role]),
      times_(times),
      step_seconds_(step_seconds),
      runs_(block_runs(role_)),
      turns_(slice_turns(role_, times)),
      memory_(schedule, role_, times, kCurveHeight) {
  const size_t runs = std::max<size_t>(runs_.size(), 1);
  double y = 0;
  for (size_t r = 0; r < runs; ++r) {
    rows_.push_back({runs_.size() > 1 ? runs_[r].text() : std::string("compute"),
                     kComputeLane, y, run_height(runs)});
    y += run_height(runs) + kRunGap;
  }
  compute_height_ = y - kRunGap;
  y = compute_height_ + kRowGap;
  std::set<int> used;
  for (const auto& action : role_.actions) used.insert(action.lane);
  used.erase(kComputeLane);
  for (int lane : used) {
    const bool link = schedule.channels[lane].kind == Channel::Kind::kLink;
    const double height = link ? kLinkHeight : kGroupHeight;
    rows_.push_back({schedule.name_of_lane(lane), lane, y, height});
    y += height + kRowGap;
  }
}

double StageRows::height() const {
  return rows_height() + (memory_.is_known() ? kMemorySpace + memory_.height() : 0);
}

void StageRows::draw_names(Svg& svg) const {
  for (const auto& row : rows_)
    svg.label(-10, row.y + row.height / 2 + 3.3, "class=\"soft small end\"", row.name);
  memory_.draw_name(svg, rows_height() + kMemorySpace);
}

void StageRows::draw(Svg& svg, const Scale& scale) const {
  for (const auto& row : rows_)
    svg.rect({0, row.y, scale.width, row.height}, "class=\"lane\"");
  draw_idle(svg, scale);
  draw_turns(svg, scale);
  for (const auto& row : rows_)
    if (row.lane != kComputeLane) draw_channel(svg, scale, row);
  memory_.draw(svg, scale, rows_height() + kMemorySpace);
}

void StageRows::draw_idle(Svg& svg, const Scale& scale) const {
  double busy_until = 0;
  const auto gap = [&](double end) {
    if (scale.x(end) - scale.x(busy_until) < 0.3) return;
    svg.rect(
        {scale.x(busy_until), 0, scale.x(end) - scale.x(busy_until), compute_height_},
        "fill=\"url(#bubble)\"",
        text("idle: ", format_duration(end - busy_until), " from ",
             format_duration(busy_until)));
  };
  for (const auto& turn : turns_) {
    gap(turn.begin);
    busy_until = std::max(busy_until, turn.end);
  }
  gap(step_seconds_);
}

// Work that belongs to no block is as high as all runs together.
Svg::Box StageRows::box_of(const SliceTurn& turn, const Scale& scale) const {
  const double x = scale.x(turn.begin);
  const double width = std::max(scale.x(turn.end) - x, kThinnestCell);
  if (turn.run == kNone) return {x, 0, width, compute_height_};
  return {x, rows_[turn.run].y, width, rows_[turn.run].height};
}

void StageRows::draw_turns(Svg& svg, const Scale& scale) const {
  CallMarks calls;
  std::map<std::string_view, std::string> patterns;  // what they cover
  std::string edges;                                 // between turns, and blocks
  for (const auto& turn : turns_)
    for (size_t action : turn.actions) {
      const Action& what = role_.actions[action];
      Svg::Box box = box_of(turn, scale);
      box.x = scale.x(times_[action].begin);
      box.width = std::max(scale.x(times_[action].end) - box.x, kThinnestCell);
      if (action != turn.actions.back()) box.width += kSeam;
      const Colour fill = colour_of(what);
      svg.rect(box, text("fill=\"", fill.text(), "\""),
               action_tip(schedule_, role_, action, times_[action]));
      if (const auto pattern = pattern_of(what.kind); !pattern.empty())
        patterns[pattern] += rectangle(box);
      calls.add(box, fill, what.calls.size());
      edges += text("M", svg_number(box.x), " ", svg_number(box.y), "v",
                    svg_number(action == turn.actions.front() ? box.height : kNotch));
    }
  for (const auto& [pattern, path] : patterns)
    svg.raw(text("<path class=\"through\" fill=\"url(#", pattern, ")\" d=\"", path,
                 "\"/>\n"));
  svg.raw(text("<path class=\"edge\" d=\"", edges, "\"/>\n"));
  calls.draw(svg);
  for (const auto& turn : turns_) draw_words(svg, turn, box_of(turn, scale));
}

void StageRows::draw_words(Svg& svg, const SliceTurn& turn, const Svg::Box& box) const {
  const Action& first = role_.actions[turn.actions.front()];
  const std::string words =
      turn.run == kNone ? short_name(first) : text("", turn.slice);
  const auto letters = static_cast<double>(words.size());
  const bool large = letters * kDigit + 3 <= box.width;
  if (!large && letters * kSmallDigit + 0.8 > box.width) return;
  svg.label(box.x + box.width / 2, box.y + box.height / 2 + (large ? 3.5 : 3.2),
            text("class=\"mark ", large ? "" : "num ",
                 colour_of(first).is_light() ? "onlight" : "ondark", "\""),
            words);
}

void StageRows::draw_channel(Svg& svg, const Scale& scale, const Row& row) const {
  for (size_t i = 0; i < role_.actions.size(); ++i) {
    const ActionTime& time = times_[i];
    if (role_.actions[i].lane != row.lane || time.end <= time.begin) continue;
    const double x = scale.x(time.begin);
    const double width = std::max(scale.x(time.end) - x, kThinnestCell);
    const Colour fill = colour_of(role_.actions[i]);
    svg.rect({x, row.y, width, row.height}, text("fill=\"", fill.text(), "\""),
             action_tip(schedule_, role_, i, time));
    const std::string words = short_name(role_.actions[i]);
    if (row.height < kGroupHeight ||
        static_cast<double>(words.size()) * kSmallDigit + 4 > width)
      continue;
    svg.label(x + width / 2, row.y + row.height / 2 + 3.2,
              text("class=\"mark num ", fill.is_light() ? "onlight" : "ondark", "\""),
              words);
  }
}

}  // namespace cohort
