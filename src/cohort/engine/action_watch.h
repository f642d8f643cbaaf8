// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/step/action.h"

namespace cohort {

// Hears of each action of a step when all that it needs is there, and when it is done:
// started, or with StepInput::in_turn finished.
class ActionWatch {
 public:
  virtual ~ActionWatch() = default;
  virtual void begin(const Action& action) = 0;
  virtual void end(const Action& action) = 0;

 protected:
  ActionWatch() = default;
};

}  // namespace cohort
