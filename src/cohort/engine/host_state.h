// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/engine/compute_side.h"
#include "cohort/engine/flat_state.h"
#include "cohort/engine/gradient_sums.h"
#include "cohort/engine/rank_groups.h"
#include "cohort/engine/state_seal.h"
#include "cohort/engine/state_side.h"
#include "cohort/engine/step_in_flight.h"
#include "cohort/engine/updates.h"
#include "cohort/optim/loss_scale.h"

namespace cohort {

// State in memory of the host: it reads the sums, and knows at once whether a step
// counts. Borrows all it is given. Thread safety: none.
class HostState final : public StateSide {
 public:
  HostState(const Chain& chain, const Schedule& schedule, const Role& role,
            const RankGroups& groups, const UpdateRule& rule, FlatState& state,
            GradientSums& gradients, ComputeSide& compute, StepInFlight& step,
            const ExecutorOptions& options, bool updates_at_once);

  void begin_step(const StepInput& input) override;
  Tensor seed() override;
  const GradientSums::Visitor* visitor() const override { return updates_.visitor(); }
  void require_finite() const override { updates_.require_finite(); }
  void norm() override;
  void fold_buffers() override;
  PendingWork vote(FaultPlan* faults) override;
  void update(int bucket) override;
  void commit() override;
  VoteState vote_state() override;
  void finish(bool skip) override;
  void close_seals() override;
  std::string damage() const override;
  std::string small_state() override;
  void set_small_state(const std::string& text) override;
  void strike(FaultPlan& faults, int64_t index) override;

 private:
  void check_samples();
  void require_sound(const std::string& broken) const;
  void require_sound_gradients() const;

  const Schedule& schedule_;
  const Role& role_;
  const RankGroups& groups_;
  const ExecutorOptions& options_;
  std::vector<NamedTensor> buffers_;  // those of the blocks
  FlatState& state_;
  GradientSums& gradients_;
  ComputeSide& compute_;
  StepInFlight& step_;
  Updates updates_;
  std::unique_ptr<StateSeal> seal_;      // null: nobody looks for flipped bits
  std::optional<LossScale> loss_scale_;  // for float16
  Tensor votes_;

  // What is known of the step in flight.
  const StepInput* input_ = nullptr;
  bool as_expected_ = false;  // what the ranks drew was compared
  std::vector<Statistic> statistics_;
  VoteState vote_state_;
  std::vector<bool> updated_;  // by bucket
};

}  // namespace cohort
