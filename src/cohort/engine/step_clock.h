// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cohort/engine/state_kernels.h"
#include "cohort/observe/meter.h"
#include "cohort/step/schedule.h"

namespace cohort {

// Where the time of a step goes on a device, by its own clock: kernels of the compute
// lane write the time where the list turns from one part of a step to another, and
// around waits for other lanes. They are part of a captured step, so a replay has times
// as any other.
//
// Borrows all it is given. Thread safety: none.
class StepClock {
 public:
  // `ahead`: actions of a first stretch, behind which the host may keep the device
  // waiting; 0: there is none.
  StepClock(const Role& role, StateKernels& kernels, int ahead = 0);

  // An action of the compute lane: before it waits for others, and behind that.
  void reach(int index) { mark(reach_[index]); }
  void act(int index) { mark(act_[index]); }
  void pause() { mark(pause_); }  // behind the first stretch
  void end() { mark(static_cast<int>(parts_.size())); }

  // On the device; and what a copy of them says, once the step is over: steps come in
  // their order. Loading, which the host has timed, counts only as far as the device
  // waited for it between two steps.
  const Tensor& times() const { return times_; }
  StepSplit split_of(const Tensor& times, double loading);

 private:
  using Part = double StepSplit::*;

  void mark(int number);
  int add(Part part);

  StateKernels& kernels_;
  std::vector<Part> parts_;       // that begin at each mark
  std::vector<int> reach_, act_;  // marks, by action; or kNone
  int pause_ = kNone;
  Tensor times_;
  std::optional<int64_t> last_end_;  // when the step before ended
};

}  // namespace cohort
