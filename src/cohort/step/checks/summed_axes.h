// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "cohort/step/schedule.h"

namespace cohort {

// Whether a sum along the one and a sum along the other add some rank's part twice.
bool share_ranks(const Mesh& mesh, AxisSet one, AxisSet other);

// The first axis along which ranks differ whose parts a sum misses.
std::optional<Axis> missing_axis(const Mesh& mesh, AxisSet wanted, AxisSet summed);

// Along which axes ranks have parts of a bucket's gradient.
AxisSet contributors(const Schedule& schedule, int bucket);

}  // namespace cohort
