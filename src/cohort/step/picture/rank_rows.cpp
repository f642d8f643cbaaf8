// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/picture/rank_rows.h"

#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/step/picture/action_look.h"

namespace cohort {
namespace {

constexpr double kComputeHeight = 26;
constexpr double kLaneHeight = 18;
constexpr double kLaneGap = 3;
constexpr double kMemoryGap = 6;
constexpr double kMemoryHeight = 34;
constexpr double kLetter = 5.9;  // width of one at 10 pixels, on the safe side
constexpr double kThinnest = 1.2;

}  // namespace

RankRows::RankRows(const Schedule& schedule, int role,
                   const std::vector<ActionTime>& times)
    : schedule_(schedule),
      role_(schedule.roles[role]),
      times_(times),
      memory_(schedule, role_, times, kMemoryHeight) {
  double y = 0;
  for (int lane = 0; lane < schedule.lanes(); ++lane) {
    const bool used =
        lane == kComputeLane ||
        std::any_of(role_.actions.begin(), role_.actions.end(),
                    [&](const Action& action) { return action.lane == lane; });
    if (!used) continue;
    const double height = lane == kComputeLane ? kComputeHeight : kLaneHeight;
    lanes_.push_back({lane, schedule.name_of_lane(lane), y, height});
    y += height + kLaneGap;
  }
}

double RankRows::lanes_height() const { return lanes_.back().y + lanes_.back().height; }

double RankRows::height() const {
  return lanes_height() + (memory_.is_known() ? kMemoryGap + memory_.height() : 0);
}

void RankRows::draw_names(Svg& svg) const {
  for (const auto& lane : lanes_)
    svg.label(-10, lane.y + lane.height / 2 + 3.5, "class=\"soft end\"", lane.name);
  memory_.draw_name(svg, lanes_height() + kMemoryGap);
}

void RankRows::draw(Svg& svg, const Scale& scale) const {
  CallMarks calls;
  for (const auto& lane : lanes_) {
    const Svg::Box box{0, lane.y, scale.width, lane.height};
    svg.rect(box, "class=\"lane\"");
    if (lane.number == kComputeLane) svg.rect(box, "fill=\"url(#idle)\"");
    for (size_t i = 0; i < role_.actions.size(); ++i)
      if (role_.actions[i].lane == lane.number) draw_action(svg, scale, lane, i, calls);
  }
  calls.draw(svg);
  memory_.draw(svg, scale, lanes_height() + kMemoryGap);
}

void RankRows::draw_action(Svg& svg, const Scale& scale, const Lane& lane,
                           size_t action, CallMarks& calls) const {
  const Action& what = role_.actions[action];
  const ActionTime& time = times_[action];
  const double x = scale.x(time.begin);
  const double width = scale.x(time.end) - x;
  // Free, and a Commit that costs nothing. Not by the width, which a processor with
  // fused multiply-add may make a hair more than nothing.
  if (time.end <= time.begin) return;
  const Svg::Box box{x, lane.y, std::max(width, kThinnest), lane.height};
  const Colour fill = colour_of(what);
  svg.rect(
      box,
      text("class=\"box\" rx=\"", width > 6 ? 2 : 0, "\" fill=\"", fill.text(), "\""),
      action_tip(schedule_, role_, action, time));
  const std::string_view pattern = pattern_of(what.kind);
  if (!pattern.empty() && width > 2)
    svg.rect(box, text("fill=\"url(#", pattern, ")\" class=\"through\""));
  calls.add(box, fill, what.calls.size());
  const auto fits = [&](const std::string& words) {
    return static_cast<double>(words.size()) * kLetter + 6 < width;
  };
  std::string words = long_name(schedule_, what);
  if (!fits(words)) words = short_name(what);
  if (!fits(words)) return;
  svg.label(x + width / 2, lane.y + lane.height / 2 + 3.5,
            fill.is_light() ? "class=\"mark onlight\"" : "class=\"mark ondark\"",
            words);
}

}  // namespace cohort
