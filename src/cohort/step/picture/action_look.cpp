// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/picture/action_look.h"

#include <array>
#include <set>

#include "cohort/core/error.h"
#include "cohort/core/format.h"

namespace cohort {
namespace {

constexpr double kTickHeight = 3.5;

constexpr std::array<Colour, 8> kSliceColours = {{{78, 121, 167},
                                                  {242, 142, 43},
                                                  {89, 161, 79},
                                                  {176, 122, 161},
                                                  {225, 87, 89},
                                                  {90, 170, 165},
                                                  {214, 174, 45},
                                                  {156, 117, 95}}};
constexpr Colour kNoSlice{133, 146, 163};

// "tp", or "cp, tp".
std::string groups_called(const Schedule& schedule,
                          const std::vector<InnerCall>& calls) {
  std::set<std::string> names;
  for (const auto& call : calls)
    if (call.group >= 0 && call.group < static_cast<int>(schedule.groups.size()))
      names.insert(schedule.groups[call.group].name);
  std::string words;
  for (const auto& name : names) words += text(words.empty() ? "" : ", ", name);
  return words;
}

}  // namespace

Colour colour_of_slice(int slice) {
  return slice < 0 ? kNoSlice
                   : kSliceColours[static_cast<size_t>(slice) % kSliceColours.size()];
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
    case ActionKind::kBackwardInput:
      return base;
    case ActionKind::kBackwardWeight:
      return base.mixed(kBlack, 0.38);
    case ActionKind::kSend:
      return base.mixed(kBlack, 0.12);
    case ActionKind::kRecv:
      return base.mixed(kWhite, 0.42);
    case ActionKind::kGather:
      return base.mixed(kWhite, 0.48);
    case ActionKind::kReduce:
    case ActionKind::kReduceScatter:
      return base.mixed(kBlack, 0.22);
    case ActionKind::kReduceUpdate:
      return base.mixed(kBlack, 0.45);
    case ActionKind::kMirror:
      return {92, 158, 150};
    case ActionKind::kUpdate:
      return {72, 84, 101};
    default:
      return {142, 124, 195};
  }
}

std::string_view pattern_of(ActionKind kind) {
  if (kind == ActionKind::kRecompute) return "again";
  return kind == ActionKind::kBackwardWeight ? "weights" : "";
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
    case ActionKind::kBackwardInput:
      return with("I", action.block);
    case ActionKind::kBackwardWeight:
      return with("W", action.block);
    case ActionKind::kRecompute:
      return with("R", action.block);
    case ActionKind::kGather:
      return with("G", bucket);
    case ActionKind::kReduce:
      return with("AR", bucket);
    case ActionKind::kReduceScatter:
      return with("RS", bucket);
    case ActionKind::kReduceUpdate:
      return with("RU", bucket);
    case ActionKind::kMirror:
      return with("M", bucket);
    case ActionKind::kUpdate:
      return with("U", bucket);
    default:
      return std::string(name_of(action.kind));
  }
}

std::string action_tip(const Schedule& schedule, const Role& role, size_t action,
                       const ActionTime& time) {
  const Action& what = role.actions[action];
  std::string words = long_name(schedule, what);
  const bool transfer =
      what.kind == ActionKind::kSend || what.kind == ActionKind::kRecv;
  if (transfer) words += text(" ", schedule.name_of_lane(what.lane));
  if (what.slice != kNone) words += text(", slice ", what.slice);
  words += text(": ", format_duration(time.end - time.begin), " from ",
                format_duration(time.begin));
  if (what.bytes > 0)
    words += text(", ", format_bytes(static_cast<double>(what.bytes)));
  if (!what.calls.empty())
    words += text(", ", what.calls.size(), what.calls.size() == 1 ? " call" : " calls",
                  " in ", groups_called(schedule, what.calls));
  return words + text(" (action ", action, ")");
}

void CallMarks::add(const Svg::Box& cell, Colour fill, size_t calls) {
  std::string& path = fill.is_light() ? on_light_ : on_dark_;
  for (size_t k = 0; k < calls; ++k) {
    const double part = static_cast<double>(k + 1) / static_cast<double>(calls + 1);
    path += text("M", svg_number(cell.x + cell.width * part), " ",
                 svg_number(cell.y + cell.height - kTickHeight), "v",
                 svg_number(kTickHeight));
  }
}

void CallMarks::draw(Svg& svg) const {
  if (!on_light_.empty())
    svg.raw(text("<path class=\"calls\" d=\"", on_light_, "\"/>\n"));
  if (!on_dark_.empty())
    svg.raw(text("<path class=\"calls bright\" d=\"", on_dark_, "\"/>\n"));
}

std::string inner_groups(const Schedule& schedule) {
  std::vector<InnerCall> calls;
  for (const auto& role : schedule.roles)
    for (const auto& action : role.actions)
      calls.insert(calls.end(), action.calls.begin(), action.calls.end());
  return groups_called(schedule, calls);
}

}  // namespace cohort
