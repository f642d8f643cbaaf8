// SPDX-License-Identifier: Apache-2.0
// The part of a picture that shows what ranks of one role do.
#pragma once

#include <cstdint>
#include <vector>

#include "cohort/step/picture/svg.h"
#include "cohort/step/simulator.h"

namespace cohort {

// What all rows of a picture share, in pixels, seconds and bytes.
struct Scale {
  double width = 1000;  // for the whole time
  double seconds = 1;
  int64_t bytes = 1;  // the most that any rank holds

  double x(double time) const { return time / seconds * width; }
};

// Rows of lanes, and memory, drawn with the upper left corner at 0, 0.
class PictureRows {
 public:
  virtual ~PictureRows() = default;
  PictureRows(const PictureRows&) = delete;
  PictureRows& operator=(const PictureRows&) = delete;

  virtual double height() const = 0;
  virtual const std::vector<MemoryPoint>& memory() const = 0;
  virtual void draw(Svg& svg, const Scale& scale) const = 0;
  // Names of rows, to the left of it.
  virtual void draw_names(Svg& svg) const = 0;

 protected:
  PictureRows() = default;
};

}  // namespace cohort
