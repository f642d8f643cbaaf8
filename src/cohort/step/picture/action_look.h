// SPDX-License-Identifier: Apache-2.0
// How an action looks in a picture, and what it is called there.
#pragma once

#include <string>
#include <string_view>

#include "cohort/step/picture/svg.h"
#include "cohort/step/schedule.h"
#include "cohort/step/step_times.h"

namespace cohort {

// Colour by slice, shade by kind.
Colour colour_of_slice(int slice);
Colour colour_of(const Action& action);
// The id of a pattern over it, for kinds that a shade does not tell apart; or none.
std::string_view pattern_of(ActionKind kind);

// "Forward conv1", or short: "F3".
std::string long_name(const Schedule& schedule, const Action& action);
std::string short_name(const Action& action);

// What is shown under the pointer: "Forward conv1, slice 3: 2 ms from 4 ms (action 7)".
std::string action_tip(const Schedule& schedule, const Role& role, size_t action,
                       const ActionTime& time);

// Ticks at the foot of cells, one for each collective that the block calls inside.
// Where within the cell the call is made, nobody knows: they are spread evenly.
class CallMarks {
 public:
  void add(const Svg::Box& cell, Colour fill, size_t calls);
  void draw(Svg& svg) const;

 private:
  std::string on_light_, on_dark_;
};

// Groups in which blocks call collectives inside: "tp" or "cp, tp"; empty: none does.
std::string inner_groups(const Schedule& schedule);

}  // namespace cohort
