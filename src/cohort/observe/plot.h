// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace cohort {

struct PlotOptions {
  int width = 60;  // columns and rows of the plot itself, without axes
  int height = 10;
  bool ascii = false;
  double first_x = 1;
  double last_x = 0;  // below first_x: first_x + number of values - 1
};

// A curve with its axes, as lines. Values that are not finite leave gaps; more values
// than columns are averaged.
std::string plot(std::span<const double> values, const PlotOptions& options = {});

}  // namespace cohort
