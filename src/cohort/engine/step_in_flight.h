// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cohort/engine/step_clock.h"
#include "cohort/engine/step_sums.h"
#include "cohort/observe/meter.h"

namespace cohort {

// What the parts of an executor know of the step that they make together.
struct StepInFlight {
  StepInFlight(Communicator& comm, int64_t listed, at::Device device)
      : sums(comm, listed, device) {}

  void begin(int64_t number, double learning_rate) {
    step = number;
    rate = learning_rate;
    norm = 0;
    skipped = false;
    not_finite.clear();
    split = {};
    sums.clear();
  }

  int64_t step = 0;  // counted from 0
  double rate = 0;
  double seed_scale = 1;  // gradient of the loss itself, for narrow types
  double norm = 0;
  bool skipped = false;    // the ranks voted against it
  std::string not_finite;  // which gradient is no number, if one was found
  StepSplit split;
  StepSplit settled_split;  // on a device: that of the step whose result came last
  StepSums sums;
  std::unique_ptr<StepClock> clock;  // a device's; null: the host's is looked at
};

}  // namespace cohort
