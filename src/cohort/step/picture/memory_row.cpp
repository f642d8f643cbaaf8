// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/picture/memory_row.h"

#include <algorithm>
#include <cmath>

#include "cohort/core/error.h"
#include "cohort/core/format.h"
#include "cohort/step/memory_plan.h"

namespace cohort {

MemoryRow::MemoryRow(const Schedule& schedule, const Role& role,
                     const std::vector<ActionTime>& times, double height)
    : points_(memory_over_time(schedule, role, times)),
      height_(height),
      between_steps_(kept_bytes(schedule, role)) {
  for (const auto& time : times) end_ = std::max(end_, time.end);
}

void MemoryRow::draw_name(Svg& svg, double top) const {
  if (is_known())
    svg.label(-10, top + height_ / 2 + 3.5, "class=\"soft end\"", "memory");
}

// A step function; what stays between steps is the part under the dashed line.
void MemoryRow::draw(Svg& svg, const Scale& scale, double top) const {
  if (!is_known()) return;
  const double bottom = top + height_;
  const auto y = [&](int64_t bytes) {
    return bottom - static_cast<double>(bytes) / static_cast<double>(scale.bytes) *
                        (height_ - 4);
  };
  svg.rect({0, top, scale.width, height_}, "class=\"lane\"");
  std::string path = text("M0 ", svg_number(bottom));
  const MemoryPoint* peak = &points_.front();
  double last = bottom;
  for (const auto& point : points_) {
    if (point.bytes > peak->bytes) peak = &point;
    path += text("L", svg_number(scale.x(point.time)), " ", svg_number(last), "V",
                 svg_number(y(point.bytes)));
    last = y(point.bytes);
  }
  path += text("L", svg_number(scale.x(end_)), " ", svg_number(last), "V",
               svg_number(bottom), "Z");
  svg.raw(text("<path class=\"memory\" d=\"", path, "\"/>\n"));
  const double state = y(between_steps_);
  svg.line(0, state, scale.x(end_), state, "class=\"state\"");
  const double x = scale.x(peak->time);
  svg.raw(text("<circle class=\"peak\" cx=\"", svg_number(x), "\" cy=\"",
               svg_number(y(peak->bytes)), "\" r=\"3\"/>\n"));
  // Under the curve, and clear of the dashed line; above it where it is low.
  double words_y = std::max(y(peak->bytes) + 9, top + 11);
  if (std::abs(state - (words_y - 3)) < 7) words_y = state + 11;
  if (words_y > bottom - 1) words_y = y(peak->bytes) - 5;
  const bool right = x > scale.width * 0.8;
  svg.label(right ? x - 7 : x + 7, words_y,
            right ? "class=\"small end\"" : "class=\"small\"",
            text("peak ", format_bytes(static_cast<double>(peak->bytes))));
}

}  // namespace cohort
