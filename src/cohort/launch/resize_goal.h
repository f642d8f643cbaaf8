// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>

#include "cohort/launch/process_tree.h"

namespace cohort::process {

// The size that a run was asked to have, until it has it.
//
// A run grows at once. It shrinks by one team at a time, each after a step that was
// committed in the world without the one before it: what each held has found another
// holder by then. A run that commits none for `patience` is not waited for.
class ResizeGoal {
 public:
  ResizeGoal(int team_ranks, std::chrono::milliseconds patience)
      : team_ranks_(team_ranks), patience_(patience) {}

  void set(int ranks);
  void drop() { ranks_.reset(); }
  bool is_set() const { return ranks_.has_value(); }

  // From a world of so many ranks, the size of the next one on the way there; none
  // while it is to wait. The caller opens that world: with the last the goal is
  // dropped. `committed`: a step was, in this world.
  std::optional<int> next(int ranks, bool committed, Clock::time_point now);
  // The run has so many ranks after a loss, which may be what a shrink was asked for.
  void lost_to(int ranks);

 private:
  int team_ranks_;
  std::chrono::milliseconds patience_;
  std::optional<int> ranks_;
  std::optional<Clock::time_point> last_;  // when a world was changed for this goal
};

}  // namespace cohort::process
