// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/engine/step_clock.h"
#include "cohort/step/schedule.h"

namespace cohort {

// The lanes of a list on a device: each is a stream, and an action waits there for
// those of other lanes that the list has it wait for. The host starts all of them in
// the order of the list, and waits for none.
//
// Borrows all it is given. Thread safety: none.
class ActionLanes {
 public:
  // `clock` is told of the compute lane; null: nobody asks for times.
  ActionLanes(CudaLane& device, const Role& role, StepClock* clock = nullptr);

  // Lanes begin behind what the compute lane was given before; and it goes on behind
  // all of them. A list may be run in stretches, which may be captured each: `first` is
  // the first action of one, and pause() ends all but the last.
  void begin(int first = 0);
  void pause();
  void end();
  // `work` starts what the action does, in its lane.
  void run(int index, const std::function<void()>& work);

 private:
  int mark_of(int index) const { return first_mark_ + index; }
  int begin_mark() const { return mark_of(static_cast<int>(role_.actions.size())); }
  int end_mark(int lane) const { return begin_mark() + lane; }
  void join_lanes();

  CudaLane& device_;
  const Role& role_;
  StepClock* clock_;
  std::set<int> beside_;  // lanes but that of computing
  int first_mark_;
  int first_ = 0;                 // action of the stretch at hand
  std::vector<bool> is_awaited_;  // by action: in another lane
};

}  // namespace cohort
