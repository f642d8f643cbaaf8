// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cohort/comm/communicator.h"
#include "cohort/engine/step_runner.h"

namespace cohort {

// Finds the rank that keeps the others waiting. Slow is not dead: it is named, and the
// run goes on.
//
// The last to come to a communication waits least in it; the others wait for him. What
// they wait more than he does, over all communications of many steps, is his lateness.
class LatenessWatch {
 public:
  // Collective: every rank says how long it waited in each communication of `steps`
  // steps that took `seconds`. A line for people, on every rank alike, if one rank was
  // late by a good part of that time, now and the time before, and was not named
  // yet.
  std::optional<std::string> look(Communicator& comm, std::span<const ActionWait> waits,
                                  int64_t steps, double seconds);

 private:
  int suspect_ = -1;  // of the time before
  int named_ = -1;
};

}  // namespace cohort
