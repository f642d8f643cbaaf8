// SPDX-License-Identifier: Apache-2.0
// The parts of a picture that show one rank.
#pragma once

#include <string>
#include <vector>

#include "cohort/step/schedule.h"
#include "cohort/step/simulator.h"
#include "cohort/step/step_times.h"
#include "cohort/step/svg.h"

namespace cohort {

// How an action is filled: colour by slice, shade by kind.
Colour colour_of_slice(int slice);
Colour colour_of(const Action& action);

// "Forward conv1", or short: "F3".
std::string long_name(const Schedule& schedule, const Action& action);
std::string short_name(const Action& action);

// What all bands of a picture share, in pixels, seconds and bytes.
struct Scale {
  double width = 1000;  // of the whole time
  double seconds = 1;
  int64_t bytes = 1;  // the most that any rank holds

  double x(double time) const { return time / seconds * width; }
};

// Lanes and memory of a role, drawn with its upper left corner at 0, 0.
class Band {
 public:
  Band(const Schedule& schedule, int role, const std::vector<ActionTime>& times);

  double height() const;
  const std::vector<MemoryPoint>& memory() const { return memory_; }
  void draw(Svg& svg, const Scale& scale) const;
  // Names of lanes, to the left of it.
  void draw_names(Svg& svg) const;

 private:
  struct Lane {
    int number;
    std::string name;
    double y;
    double height;
  };
  void draw_action(Svg& svg, const Scale& scale, const Lane& lane, size_t action) const;
  void draw_memory(Svg& svg, const Scale& scale) const;
  std::string tip(size_t action) const;

  const Schedule& schedule_;
  const Role& role_;
  const std::vector<ActionTime>& times_;
  std::vector<Lane> lanes_;
  std::vector<MemoryPoint> memory_;
};

}  // namespace cohort
