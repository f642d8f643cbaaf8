// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/engine/compute_side.h"
#include "cohort/engine/device_norm.h"
#include "cohort/engine/flat_state.h"
#include "cohort/engine/gradient_sums.h"
#include "cohort/engine/rank_groups.h"
#include "cohort/engine/running_statistics.h"
#include "cohort/engine/state_home.h"
#include "cohort/engine/state_side.h"
#include "cohort/engine/step_in_flight.h"

namespace cohort {

// State in the memory of a device, which looks at sums itself and decides: whether a
// step counts is a word there, the gate, that updates obey. So the host starts all of
// it without knowing any result, and a captured step is never out of date.
//
// Borrows all it is given. Thread safety: none.
class DeviceState final : public StateSide {
 public:
  DeviceState(const Chain& chain, const Schedule& schedule, const Role& role,
              const RankGroups& groups, const StateHome& home, const UpdateRule& rule,
              FlatState& state, GradientSums& gradients, ComputeSide& compute,
              StepInFlight& step, const ExecutorOptions& options);

  void begin_step(const StepInput& input) override;
  Tensor seed() override { return seed_; }
  void norm() override;
  void fold_buffers() override;
  PendingWork vote() override;
  void update(int bucket) override;
  void commit() override;
  void settle() override;
  Standing standing() const override { return standing_; }
  void finish(bool skip) override;
  void strike(int64_t index) override;
  std::string small_state() override;
  void set_small_state(const std::string& text) override;

 private:
  ShareUpdateOptions update_of(int bucket) const;
  ShareMemory memory_of(int bucket) const;
  void set_scale();
  void look_at(int bucket);
  void open_gate(const Tensor& against);
  std::string bad_gradient() const;

  const Schedule& schedule_;
  const RankGroups& groups_;
  const ExecutorOptions& options_;
  StateHome home_;
  FlatState& state_;
  GradientSums& gradients_;
  ComputeSide& compute_;
  StepInFlight& step_;
  const int rounds_;     // slices of the rank that has most
  const bool may_skip_;  // else a bad step ends the run: some of it has changed
  DeviceNorm norm_;
  RunningStatistics statistics_;
  std::vector<std::unique_ptr<ShareUpdate>> updates_;  // by bucket

  // In the memory of the device.
  Tensor numbers_;             // StepNumbers
  Tensor against_;             // votes
  Tensor unexpected_;          // a bool: other samples were drawn than the step has
  Tensor seed_;                // of backward
  Tensor scale_, good_steps_;  // of the loss, for float16

  // What is known of the step in flight.
  std::optional<SampleSum> expected_;
  bool is_scaled_ = false, is_voted_ = false;
  Standing standing_;
};

}  // namespace cohort
