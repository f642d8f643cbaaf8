// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cohort/step/schedule.h"
#include "cohort/step/step_times.h"

namespace cohort {

struct PictureOptions {
  std::string title;   // "fashion-mnist, dp=4, shard=3"
  StepTimes measured;  // drawn under the predicted ones; empty: nothing was measured
  int most_ranks = 8;  // with more, rows stand for a role
};

// A step as a picture (SVG 1.1, no scripts, nothing from elsewhere): for each rank one
// row per lane, time from left to right, and under them the memory the rank holds.
// Colours are slices, shades are kinds. Light and dark pages both do.
//
// Rows of a pipeline are its roles, from the first stage to the last. Their cells are
// numbered by slice, and each says how long its ranks compute nothing. All of them are
// drawn as foretold, then all as measured.
std::string render_svg(const Schedule& schedule, const StepTimes& predicted,
                       const PictureOptions& options = {});

}  // namespace cohort
