// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <tuple>

#include "cohort/core/record.h"
#include "cohort/data/sample_sum.h"
#include "cohort/engine/step_sums.h"

namespace cohort {

// What a rank knows of the last step it committed. Every rank keeps it: the one that
// notes steps may be lost before it noted this one, and the next asks the ranks left.
struct LastStep {
  int64_t step = 0;  // counted from 1; 0: it knows of none
  double loss = 0;
  SampleSum drawn;
  DrawnSamples samples;  // if they are listed

  bool operator==(const LastStep&) const = default;
};
auto record_fields(Alike<LastStep> auto& last) {
  return std::tie(last.step, last.loss, last.drawn.sum, last.drawn.count, last.samples);
}

}  // namespace cohort
