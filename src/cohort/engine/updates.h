// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "cohort/engine/flat_state.h"
#include "cohort/engine/gradient_sums.h"
#include "cohort/engine/rank_groups.h"
#include "cohort/engine/step_in_flight.h"
#include "cohort/engine/tensor_totals.h"
#include "cohort/step/schedule.h"
#include "cohort/update_rule.h"

namespace cohort {

// How sums of gradients change the state: looks at them, and applies the update rule to
// this rank's shards. Borrows all it is given. Thread safety: none.
class Updates {
 public:
  struct Options {
    double clip = 0;       // largest norm of the gradient; 0: any
    bool at_once = false;  // shards are updated as they are summed, for all ranks
  };
  Updates(const Schedule& schedule, const RankGroups& groups, const UpdateRule& rule,
          FlatState& state, GradientSums& gradients, StepInFlight& step,
          const Options& options);

  // Null where sums are kept: else what to do with one.
  const GradientSums::Visitor* visitor() const {
    return options_.at_once ? &visitor_ : nullptr;
  }
  // Error if a sum that a visitor saw is no number.
  void require_finite() const;

  // This rank's shard, and the one it mirrors. `voted`: all of them are finite; else
  // Error if they are not.
  void apply(int bucket, bool voted);

  // Looks at all gradients together, before any update: their norm, and what the rule
  // asks of each tensor. Changes no state; collective.
  void norm(bool communicate);
  // All of what this rank has, or one part of as many. Padding is left out.
  bool are_finite(int part = 0, int parts = 1) const;
  // The ranks have voted against a step of a run that does not leave steps out.
  [[noreturn]] void stop_for_bad_sum();

 private:
  void require_norm() const;
  StepScalars scalars() const;
  void visit(int bucket, int64_t begin, int64_t count, float* sum);
  void apply_to(int bucket, ShardState& shard, const Tensor& sum, bool voted);
  template <typename Real>
  bool update_stretch(int bucket, ShardState& shard, const Tensor& sum, int64_t at,
                      bool voted, std::vector<Real>& widened);
  template <typename Real>
  void check_sum(int bucket, int64_t begin, int64_t count, const Real* sum);
  void check_stretch(int bucket, const ShardState& shard, const Tensor& sum,
                     int64_t at);

  const Schedule& schedule_;
  const RankGroups& groups_;
  const UpdateRule& rule_;
  FlatState& state_;
  GradientSums& gradients_;
  StepInFlight& step_;
  Options options_;
  TensorTotals totals_;
  GradientSums::Visitor visitor_;
  std::vector<std::vector<Tensor>> peer_parameters_;  // by bucket, by rank
};

}  // namespace cohort
