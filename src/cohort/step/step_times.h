// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace cohort {

// When an action ran, in seconds since the step began.
struct ActionTime {
  double begin = 0;
  double end = 0;

  bool operator==(const ActionTime&) const = default;
};

// When each action of each role ran, predicted or measured: by role, by action.
using StepTimes = std::vector<std::vector<ActionTime>>;

}  // namespace cohort
