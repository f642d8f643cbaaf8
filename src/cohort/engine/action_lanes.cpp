// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/action_lanes.h"

namespace cohort {

ActionLanes::ActionLanes(CudaLane& device, const Role& role, StepClock* clock)
    : device_(device),
      role_(role),
      clock_(clock),
      is_awaited_(role.actions.size(), false) {
  for (const auto& action : role.actions) {
    if (action.lane != kComputeLane) beside_.insert(action.lane);
    for (const int earlier : action.waits)
      if (role.actions[earlier].lane != action.lane) is_awaited_[earlier] = true;
  }
  const int lanes = beside_.empty() ? 0 : *beside_.rbegin() + 1;
  first_mark_ = device.make_marks(static_cast<int>(role.actions.size()) + lanes);
}

void ActionLanes::begin(int first) {
  first_ = first;
  if (beside_.empty()) return;
  device_.run([&] { device_.set_mark(begin_mark()); });
  for (const int lane : beside_)
    device_.run_beside(lane, [&] { device_.wait_for_mark(begin_mark()); });
}

void ActionLanes::run(int index, const std::function<void()>& work) {
  const Action& action = role_.actions[index];
  const bool timed = clock_ && action.lane == kComputeLane;
  device_.run_beside(action.lane, [&] {
    if (timed) clock_->reach(index);
    // A stretch begins when all of the one before it is done.
    for (const int earlier : action.waits)
      if (earlier >= first_ && role_.actions[earlier].lane != action.lane)
        device_.wait_for_mark(mark_of(earlier));
    if (timed) clock_->act(index);
    work();
    if (is_awaited_[index]) device_.set_mark(mark_of(index));
  });
}

void ActionLanes::pause() {
  join_lanes();
  if (clock_) device_.run([&] { clock_->pause(); });
}

void ActionLanes::end() {
  if (clock_) device_.run([&] { clock_->end(); });
  join_lanes();
}

void ActionLanes::join_lanes() {
  for (const int lane : beside_) {
    device_.run_beside(lane, [&] { device_.set_mark(end_mark(lane)); });
    device_.run([&] { device_.wait_for_mark(end_mark(lane)); });
  }
}

}  // namespace cohort
