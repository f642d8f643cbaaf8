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
#include "cohort/engine/step_in_flight.h"
#include "cohort/engine/step_runner.h"
#include "cohort/engine/updates.h"
#include "cohort/optim/loss_scale.h"

namespace cohort {

// The end of a step: sums of gradients are looked at and voted on, and change the
// weights. Knows how far the step came, and can do what is missing of one that was
// voted on. Borrows all it is given. Thread safety: none.
class StateSide {
 public:
  StateSide(const Chain& chain, const Schedule& schedule, const Role& role,
            const RankGroups& groups, FlatState& state, GradientSums& gradients,
            Updates& updates, ComputeSide& compute, StepInFlight& step,
            const ExecutorOptions& options);

  // What the gradient of the loss is multiplied with.
  double seed_scale() const;

  void begin_step();
  void norm();
  void fold_buffers();
  // Error of our kind unless the ranks drew what `input` expects.
  void check_samples(const StepInput& input);
  PendingWork vote();
  void update(int bucket);
  void commit();

  Standing standing() const;
  // Without peers, of a step that was voted on: what is missing.
  void finish(bool skip);

  // The state is what it should be from here on; what of it is not, as one line.
  void close_seals();
  std::string damage() const;

  LossScale* loss_scale() { return loss_scale_ ? &*loss_scale_ : nullptr; }

  // What a damaged memory would do: a bit of some kind of memory is another. At each
  // action it is another bit, or a second flip would undo the first.
  void strike(int64_t index);

 private:
  void require_sound(const std::string& broken) const;
  void require_sound_gradients() const;

  const Schedule& schedule_;
  const Role& role_;
  const RankGroups& groups_;
  const ExecutorOptions& options_;
  std::vector<NamedTensor> buffers_;  // of the blocks
  FlatState& state_;
  GradientSums& gradients_;
  Updates& updates_;
  ComputeSide& compute_;
  StepInFlight& step_;
  std::unique_ptr<StateSeal> seal_;      // null: nobody looks for flipped bits
  std::optional<LossScale> loss_scale_;  // of float16
  Tensor votes_;

  // What is known of the step in flight.
  bool as_expected_ = false;  // what the ranks drew was compared
  std::vector<Statistic> statistics_;
  Standing standing_;
  std::vector<bool> updated_;  // by bucket
};

}  // namespace cohort
