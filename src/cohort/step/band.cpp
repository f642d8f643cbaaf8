// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/band.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "cohort/core/error.h"
#include "cohort/core/format.h"

namespace cohort {
namespace {

constexpr double kComputeHeight = 26;
constexpr double kLaneHeight = 18;
constexpr double kLaneGap = 3;
constexpr double kMemoryGap = 6;
constexpr double kMemoryHeight = 34;
constexpr double kLetter = 5.9;  // width of one at 10 pixels, on the safe side
constexpr double kThinnest = 1.2;

constexpr std::array<Colour, 8> kSlices = {{{78, 121, 167},
                                            {242, 142, 43},
                                            {89, 161, 79},
                                            {176, 122, 161},
                                            {225, 87, 89},
                                            {90, 170, 165},
                                            {214, 174, 45},
                                            {156, 117, 95}}};
constexpr Colour kNoSlice{133, 146, 163};

}  // namespace

Colour colour_of_slice(int slice) {
  return slice < 0 ? kNoSlice : kSlices[static_cast<size_t>(slice) % kSlices.size()];
}

Colour colour_of(const Action& action) {
  const Colour base = colour_of_slice(action.slice);
  switch (action.kind) {
    case ActionKind::kForward:
      return base.mixed(kWhite, 0.38);
    case ActionKind::kRecompute:
      return base.mixed(kWhite, 0.62);
    case ActionKind::kBackward:
      return base.mixed(kBlack, 0.08);
    case ActionKind::kGather:
      return base.mixed(kWhite, 0.48);
    case ActionKind::kReduce:
    case ActionKind::kReduceScatter:
      return base.mixed(kBlack, 0.22);
    case ActionKind::kMirror:
      return {92, 158, 150};
    case ActionKind::kUpdate:
      return {72, 84, 101};
    case ActionKind::kOffload:
    case ActionKind::kFetch:
      return {196, 160, 116};
    default:
      return {142, 124, 195};
  }
}

std::string long_name(const Schedule& schedule, const Action& action) {
  std::string name(name_of(action.kind));
  if (action.buckets == std::vector{kLossBucket}) return name + " loss";
  const auto block = static_cast<size_t>(action.block);
  if (action.block >= 0 && block < schedule.blocks.size())
    return text(name, " ", schedule.blocks[block]);
  if (action.block >= 0) return text(name, " ", action.block);
  return action.buckets.size() == 1 ? text(name, " ", action.buckets[0]) : name;
}

std::string short_name(const Action& action) {
  const auto with = [](const char* letters, int number) {
    return text(letters, number);
  };
  const int bucket = action.buckets.size() == 1 ? action.buckets[0] : kNone;
  if (bucket == kLossBucket) return "loss";
  switch (action.kind) {
    case ActionKind::kForward:
      return with("F", action.block);
    case ActionKind::kBackward:
      return with("B", action.block);
    case ActionKind::kRecompute:
      return with("R", action.block);
    case ActionKind::kGather:
      return with("G", bucket);
    case ActionKind::kReduce:
      return with("AR", bucket);
    case ActionKind::kReduceScatter:
      return with("RS", bucket);
    case ActionKind::kMirror:
      return with("M", bucket);
    case ActionKind::kUpdate:
      return with("U", bucket);
    case ActionKind::kOffload:
      return with("to host ", bucket);
    case ActionKind::kFetch:
      return with("from host ", bucket);
    default:
      return std::string(name_of(action.kind));
  }
}

Band::Band(const Schedule& schedule, int role, const std::vector<ActionTime>& times)
    : schedule_(schedule),
      role_(schedule.roles[role]),
      times_(times),
      memory_(memory_over_time(role_, times)) {
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

double Band::height() const {
  return lanes_.back().y + lanes_.back().height + kMemoryGap + kMemoryHeight;
}

void Band::draw_names(Svg& svg) const {
  for (const auto& lane : lanes_)
    svg.label(-10, lane.y + lane.height / 2 + 3.5, "class=\"soft end\"", lane.name);
  svg.label(-10, height() - kMemoryHeight / 2 + 3.5, "class=\"soft end\"", "memory");
}

void Band::draw(Svg& svg, const Scale& scale) const {
  for (const auto& lane : lanes_) {
    const Svg::Box box{0, lane.y, scale.width, lane.height};
    svg.rect(box, "class=\"lane\"");
    if (lane.number == kComputeLane) svg.rect(box, "fill=\"url(#idle)\"");
    for (size_t i = 0; i < role_.actions.size(); ++i)
      if (role_.actions[i].lane == lane.number) draw_action(svg, scale, lane, i);
  }
  draw_memory(svg, scale);
}

std::string Band::tip(size_t action) const {
  const Action& what = role_.actions[action];
  const ActionTime& time = times_[action];
  std::string words = long_name(schedule_, what);
  if (what.slice != kNone) words += text(", slice ", what.slice);
  words += text(": ", format_duration(time.end - time.begin), " from ",
                format_duration(time.begin));
  if (what.bytes > 0)
    words += text(", ", format_bytes(static_cast<double>(what.bytes)));
  return words + text(" (action ", action, ")");
}

void Band::draw_action(Svg& svg, const Scale& scale, const Lane& lane,
                       size_t action) const {
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
      tip(action));
  if (what.kind == ActionKind::kRecompute && width > 2)
    svg.rect(box, "fill=\"url(#again)\" class=\"through\"");
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

// A step function; what stays between steps is the part under the dashed line.
void Band::draw_memory(Svg& svg, const Scale& scale) const {
  const double bottom = height(), top = bottom - kMemoryHeight;
  const auto y = [&](int64_t bytes) {
    return bottom - static_cast<double>(bytes) / static_cast<double>(scale.bytes) *
                        (kMemoryHeight - 4);
  };
  svg.rect({0, top, scale.width, kMemoryHeight}, "class=\"lane\"");
  std::string path = text("M0 ", svg_number(bottom));
  const MemoryPoint* peak = &memory_.front();
  double last = bottom;
  for (const auto& point : memory_) {
    if (point.bytes > peak->bytes) peak = &point;
    path += text("L", svg_number(scale.x(point.time)), " ", svg_number(last), "V",
                 svg_number(y(point.bytes)));
    last = y(point.bytes);
  }
  double end = 0;
  for (const auto& time : times_) end = std::max(end, time.end);
  path += text("L", svg_number(scale.x(end)), " ", svg_number(last), "V",
               svg_number(bottom), "Z");
  svg.raw(text("<path class=\"memory\" d=\"", path, "\"/>\n"));
  const int64_t state = role_.actions.back().takes;
  svg.line(0, y(state), scale.x(end), y(state), "class=\"state\"");
  const double x = scale.x(peak->time);
  svg.raw(text("<circle class=\"peak\" cx=\"", svg_number(x), "\" cy=\"",
               svg_number(y(peak->bytes)), "\" r=\"3\"/>\n"));
  // Under the curve, and clear of the dashed line.
  double words_y = std::max(y(peak->bytes) + 9, top + 11);
  if (std::abs(y(state) - (words_y - 3)) < 7) words_y = y(state) + 11;
  const bool right = x > scale.width * 0.8;
  svg.label(right ? x - 7 : x + 7, words_y,
            right ? "class=\"small end\"" : "class=\"small\"",
            text("peak ", format_bytes(static_cast<double>(peak->bytes))));
}

}  // namespace cohort
