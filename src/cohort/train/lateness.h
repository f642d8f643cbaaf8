// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cohort/communicator.h"
#include "cohort/engine/step_runner.h"

namespace cohort {

// Finds the rank that keeps the others waiting. Slow is not dead: it is named, and the
// run goes on.
//
// The last to come to a communication waits least in it; the others wait for him. What
// they wait more than he does, over all communications of many steps, is his lateness.
class LatenessWatch {
 public:
  // A world begins: newcomers have seen none of the steps before.
  void enter() { steps_ = 0, seconds_ = 0; }

  // A step of this rank that took so long.
  void add(double seconds) { ++steps_, seconds_ += seconds; }

  // Collective: every rank says how long it waited in each communication of the steps
  // since the last look. A line for people, on every rank alike, if one rank was late
  // by a good part of their time, now and the time before, and was not named yet.
  std::optional<std::string> look(Communicator& comm,
                                  std::span<const ActionWait> waits);

 private:
  int64_t steps_ = 0;   // since the last look
  double seconds_ = 0;  // that they took
  int suspect_ = -1;    // at the look before
  int named_ = -1;
};

}  // namespace cohort
