// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/step_clock.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace cohort {
namespace {

constexpr double kNanosecond = 1e-9;

// Null: it belongs to whatever is under way.
double StepSplit::*part_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return &StepSplit::forward;
    case ActionKind::kRecompute:
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
    case ActionKind::kBackwardWeight:
      return &StepSplit::backward;
    case ActionKind::kFree:
      return nullptr;
    default:
      return &StepSplit::update;
  }
}

}  // namespace

StepClock::StepClock(const Role& role, StateKernels& kernels, int ahead)
    : kernels_(kernels),
      reach_(role.actions.size(), kNone),
      act_(role.actions.size(), kNone) {
  Part current = nullptr;
  for (size_t i = 0; i < role.actions.size(); ++i) {
    const Action& action = role.actions[i];
    if (action.lane != kComputeLane) continue;
    const Part part = part_of(action.kind);
    const bool waits = std::ranges::any_of(action.waits, [&](int earlier) {
      return role.actions[earlier].lane != kComputeLane;
    });
    const bool goes_on = ahead > 0 && pause_ == kNone && static_cast<int>(i) >= ahead;
    if (goes_on) pause_ = add(&StepSplit::wait);
    if (waits) reach_[i] = add(&StepSplit::wait);
    if (waits || goes_on || (part && part != current))
      act_[i] = add(part ? part : current);
    if (part) current = part;
  }
  times_ = at::zeros({static_cast<int64_t>(parts_.size()) + 1},
                     at::TensorOptions(at::kLong).device(kernels.device()));
}

int StepClock::add(Part part) {
  parts_.push_back(part ? part : &StepSplit::forward);
  return static_cast<int>(parts_.size()) - 1;
}

void StepClock::mark(int number) {
  if (number != kNone) kernels_.write_time(times_.narrow(0, number, 1));
}

StepSplit StepClock::split_of(const Tensor& times, double loading) {
  StepSplit split{.data = loading};
  const int64_t* const at = times.const_data_ptr<int64_t>();
  if (last_end_)
    split.data =
        std::min(loading, kNanosecond * static_cast<double>(at[0] - *last_end_));
  last_end_ = at[parts_.size()];
  for (size_t i = 0; i < parts_.size(); ++i)
    split.*parts_[i] += kNanosecond * static_cast<double>(at[i + 1] - at[i]);
  return split;
}

}  // namespace cohort
