// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/engine/compute_side.h"
#include "cohort/engine/cuda/cuda_lane.h"
#include "cohort/engine/device_loss_scale.h"
#include "cohort/engine/device_norm.h"
#include "cohort/engine/flat_state.h"
#include "cohort/engine/gradient_sums.h"
#include "cohort/engine/rank_groups.h"
#include "cohort/engine/running_statistics.h"
#include "cohort/engine/state_home.h"
#include "cohort/engine/state_side.h"
#include "cohort/engine/step_in_flight.h"
#include "cohort/engine/step_results.h"
#include "cohort/engine/step_upload.h"

namespace cohort {

// State in the memory of a device, which looks at sums itself and decides: whether a
// step counts is a word there, the gate, that updates obey. So the host starts all of
// it without knowing any result, and a captured step is never out of date.
//
// A vote is a word of each rank that names the step, so that what is left of another
// step, or of an exchange that was cut off, is no vote. A rank whose peers are being
// left casts none. How far a step came that was cut off is read from the device, when
// that has come to an end. That is the last step that begin_changes() was called for:
// forwards of the next one may be under way, and touch nothing that this one needs.
//
// Borrows all it is given. Thread safety: none.
class DeviceState final : public StateSide {
 public:
  DeviceState(const Chain& chain, const Schedule& schedule, const Role& role,
              const RankGroups& groups, const StateHome& home, CudaLane& lane,
              const UpdateRule& rule, FlatState& state, GradientSums& gradients,
              ComputeSide& compute, StepInFlight& step, const ExecutorOptions& options);

  void begin_step(const StepInput& input) override;
  void begin_changes(const StepInput& input) override;
  Tensor seed() override { return loss_scale_.seed(); }
  void norm() override;
  void fold_buffers() override;
  PendingWork vote(FaultPlan* faults) override;
  void update(int bucket) override;
  void commit() override;
  void has_replayed() override;
  void leave_result() override { results_.leave(expected_); }
  void settle() override;
  bool is_settled() const override { return results_.empty(); }
  VoteState vote_state() override;
  void finish(bool skip) override;
  void strike(FaultPlan& faults, int64_t index) override;
  std::string small_state() override { return loss_scale_.saved(); }
  void set_small_state(const std::string& text) override { loss_scale_.restore(text); }

 private:
  // How a bucket changes: this rank's shard, and the one that it mirrors; null: none.
  struct Update {
    std::unique_ptr<ShardUpdate> own, mirror;
  };

  std::unique_ptr<ShardUpdate> update_of(int bucket, const ShardState& shard) const;
  Tensor published(int bucket) const;
  ShardMemory memory_of(int bucket) const;
  const Tensor& numbers_there() const { return sent_numbers_.there(); }
  void set_scale();
  void look_at(int bucket);
  void open_gate();
  void conclude(int64_t step, const StepNumbers& numbers);
  void forget_started();
  void settle_sums();
  std::string bad_gradient() const;

  const Schedule& schedule_;
  const RankGroups& groups_;
  const ExecutorOptions& options_;
  StateHome home_;
  CudaLane& lane_;
  FlatState& state_;
  GradientSums& gradients_;
  ComputeSide& compute_;
  StepInFlight& step_;
  const int rounds_;  // slices of the rank that has most
  const bool has_vote_;
  const bool may_skip_;  // else a bad step ends the run: some of it has changed
  DeviceNorm norm_;
  RunningStatistics statistics_;
  std::vector<Update> updates_;  // by bucket
  Tensor stop_;                  // in host memory; undefined: nobody stops this rank

  // In the memory of the device.
  StepUpload sent_numbers_;  // StepNumbers
  Tensor votes_;             // words, by rank
  Tensor unexpected_;        // a bool: other samples were drawn than the step has
  DeviceLossScale loss_scale_;

  StepResults results_;

  // The step in flight.
  int64_t number_ = 0;  // from 0
  std::optional<SampleSum> expected_;
  struct Started {
    bool scale = false, vote = false, commit = false;
    std::vector<bool> updates;  // by bucket
  };
  Started started_;
  std::optional<VoteState> vote_state_;  // none: the device knows
};

}  // namespace cohort
