// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/step/action.h"
#include "cohort/tensor.h"

namespace cohort {

// Hears of each action of a step when all that it needs is there, and when it is done:
// started, or with StepInput::in_turn finished.
class ActionWatch {
 public:
  virtual ~ActionWatch() = default;
  virtual void begin(const Action& action) = 0;
  virtual void end(const Action& action) = 0;
  // Between the two, of a Send: what it gives to a peer, which may read it later, and
  // through pages of its own.
  virtual void gives(const Tensor&) {}
  // Whether communication of that lane starts as late as it can (Performer).
  virtual bool delays(int) const { return false; }

 protected:
  ActionWatch() = default;
};

}  // namespace cohort
