// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cohort/step/picture/picture_rows.h"
#include "cohort/step/schedule.h"
#include "cohort/step/simulator.h"
#include "cohort/step/step_times.h"

namespace cohort {

// What a rank of a role holds over time, as a curve. A step of which nobody knows the
// bytes has none, and the row no height.
class MemoryRow {
 public:
  MemoryRow(const Schedule& schedule, const Role& role,
            const std::vector<ActionTime>& times, double height);

  bool is_known() const { return !points_.empty(); }
  double height() const { return is_known() ? height_ : 0; }
  const std::vector<MemoryPoint>& points() const { return points_; }
  void draw(Svg& svg, const Scale& scale, double top) const;
  void draw_name(Svg& svg, double top) const;

 private:
  std::vector<MemoryPoint> points_;
  double height_;
  int64_t between_steps_ = 0;
  double end_ = 0;  // where the last action ends
};

}  // namespace cohort
