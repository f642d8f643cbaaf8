// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/picture/legend.h"

#include <algorithm>
#include <set>

#include "cohort/core/error.h"
#include "cohort/step/picture/action_look.h"

namespace cohort {
namespace {

constexpr double kLegendMargin = 24, kIndent = 76;
constexpr double kFirstLine = 20, kLegendLine = 22;
constexpr double kSwatch = 14, kSwatchHeight = 11;
constexpr double kToWords = 19;  // from the swatch
constexpr double kBetween = 18;
constexpr double kLetterOfLegend = 5.6;
constexpr int kColours = 8;

std::string filled(Colour colour) { return text("fill=\"", colour.text(), "\""); }

// The halves of a backward stand beside it.
std::vector<ActionKind> kinds_in(const Schedule& schedule) {
  std::set<ActionKind> seen;
  for (const auto& role : schedule.roles)
    for (const auto& action : role.actions) seen.insert(action.kind);
  seen.erase(ActionKind::kFree);
  seen.erase(ActionKind::kCommit);
  std::vector<ActionKind> kinds(seen.begin(), seen.end());
  if (std::erase(kinds, ActionKind::kBackwardInput) > 0) {
    kinds.insert(std::find_if(kinds.begin(), kinds.end(),
                              [](ActionKind kind) {
                                return kind >= ActionKind::kBackwardWeight;
                              }),
                 ActionKind::kBackwardInput);
  }
  return kinds;
}

}  // namespace

Legend::Legend(const Schedule& schedule, bool has_memory, double page_width)
    : page_width_(page_width), y_(kFirstLine) {
  add_colours(schedule);
  y_ += kLegendLine;
  add_shades(schedule, has_memory);
  height_ = y_ + kLegendLine;
}

void Legend::add(Entry entry) {
  const double width =
      kToWords + static_cast<double>(entry.words.size()) * kLetterOfLegend;
  if (x_ > kIndent && x_ + width > page_width_) {
    x_ = kIndent;
    y_ += kLegendLine;
  }
  entry.x = x_;
  entry.y = y_;
  x_ += width + kBetween;
  entries_.push_back(std::move(entry));
}

void Legend::add_colours(const Schedule& schedule) {
  int slices = 1;
  for (const auto& role : schedule.roles) slices = std::max(slices, role.slices);
  entries_.push_back({.words = "colours", .x = kLegendMargin, .y = y_});
  x_ = kIndent;
  for (int s = 0; s < std::min(slices, kColours); ++s)
    add({.words = text("slice ", s), .fill = filled(colour_of_slice(s))});
  const bool numbered = schedule.mesh.size(Axis::kPipe) > 1;
  if (slices > kColours)
    add({.words =
             numbered ? "and so on, again; numbers are slices" : "and so on, again"});
  else if (numbered)
    add({.words = "numbers are slices"});
}

void Legend::add_shades(const Schedule& schedule, bool has_memory) {
  const bool numbered = schedule.mesh.size(Axis::kPipe) > 1;
  entries_.push_back({.words = "shades", .x = kLegendMargin, .y = y_});
  x_ = kIndent;
  for (const ActionKind kind : kinds_in(schedule)) {
    Action sample{.kind = kind, .slice = 0};
    if (kind == ActionKind::kReduce) sample.slice = kNone;
    add({.words = std::string(name_of(kind)),
         .fill = filled(colour_of(sample)),
         .pattern = std::string(pattern_of(kind))});
  }
  if (const std::string groups = inner_groups(schedule); !groups.empty())
    add({.words = text("calls inside a block (", groups, ")"),
         .fill = filled(colour_of({.kind = ActionKind::kForward, .slice = 0})),
         .calls = true});
  add({.words = "idle",
       .fill = "class=\"lane\"",
       .pattern = numbered ? "bubble" : "idle"});
  if (has_memory)
    add({.words = "memory held (dashed: between steps)", .fill = "class=\"memory\""});
}

void Legend::draw(Svg& svg, double top) const {
  for (const auto& entry : entries_) {
    const double y = top + entry.y;
    const Svg::Box box{entry.x, y - 9, kSwatch, kSwatchHeight};
    if (!entry.fill.empty()) svg.rect(box, text("rx=\"2\" ", entry.fill));
    svg.label(entry.x + (entry.fill.empty() ? 0 : kToWords), y, "class=\"soft\"",
              entry.words);
    if (!entry.pattern.empty())
      svg.rect(box, text("fill=\"url(#", entry.pattern, ")\""));
    if (!entry.calls) continue;
    CallMarks marks;
    marks.add(box, colour_of({.kind = ActionKind::kForward, .slice = 0}), 2);
    marks.draw(svg);
  }
}

}  // namespace cohort
