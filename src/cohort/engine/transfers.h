// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/engine/compute_side.h"
#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/engine/flat_state.h"
#include "cohort/engine/gradient_sums.h"
#include "cohort/engine/interpreter.h"
#include "cohort/engine/link_values.h"
#include "cohort/engine/rank_groups.h"
#include "cohort/engine/step_in_flight.h"

namespace cohort {

// What a step exchanges with its peers: gradients one way, parameters the other.
// Borrows all it is given. Thread safety: none.
class Transfers {
 public:
  // `lane`: where blocks compute; null: on the host. Collective.
  Transfers(const Schedule& schedule, const RankChannels& channels, CudaLane* lane,
            FlatState& state, GradientSums& gradients, ComputeSide& compute,
            StepInFlight& step);

  // `visitor`: of sums that are used as they are made.
  PendingWork reduce(const Action& action, const GradientSums::Visitor* visitor);
  PendingWork mirror(const Action& action);
  PendingWork gather(const Action& action, Interpreter& interpreter);
  void free_parameters(int bucket);
  // Along a link: an output or its gradient, or the sum of a gradient for a second
  // copy.
  PendingWork send(const Action& action);
  PendingWork receive(const Action& action);
  // Memory of a bucket that a Send gives away; none: activations have their own.
  Tensor sent_of_bucket(const Action& action) const;

 private:
  Work move_shards(BucketState& state);
  PendingWork send_sum(const Action& action);
  PendingWork receive_sum(const Action& action);

  const Schedule& schedule_;
  const RankChannels& channels_;
  const RankGroups& groups_;
  CudaLane* lane_;
  FlatState& state_;
  GradientSums& gradients_;
  ComputeSide& compute_;
  StepInFlight& step_;
  LinkValues links_;
};

}  // namespace cohort
