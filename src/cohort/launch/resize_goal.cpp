// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/resize_goal.h"

namespace cohort::process {

void ResizeGoal::set(int ranks) {
  ranks_ = ranks;
  last_.reset();
}

std::optional<int> ResizeGoal::next(int ranks, bool committed, Clock::time_point now) {
  if (!ranks_) return std::nullopt;
  const bool shrinks = *ranks_ < ranks;
  if (shrinks && last_ && !committed && now < *last_ + patience_) return std::nullopt;
  last_ = now;
  const int next = shrinks ? ranks - team_ranks_ : *ranks_;
  if (next == *ranks_) ranks_.reset();
  return next;
}

void ResizeGoal::lost_to(int ranks) {
  if (ranks_ && ranks <= *ranks_) ranks_.reset();
}

}  // namespace cohort::process
