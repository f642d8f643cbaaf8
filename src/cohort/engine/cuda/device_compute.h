// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "cohort/engine/compute_side.h"
#include "cohort/engine/cuda/device_side.h"
#include "cohort/engine/step_in_flight.h"

namespace cohort {

// Blocks compute on a device, while state stays with the host, which sums and updates.
// The device is given work as far ahead as memory allows, in stretches that become CUDA
// graphs once their shapes are known; the host follows with what they finish.
class DeviceCompute final : public ComputeSide, private Surroundings {
 public:
  // BugError if the schedule plans no memory of a device. Borrows all it is given.
  DeviceCompute(const Chain& chain, FlatState& state, GradientSums& gradients,
                const Schedule& schedule, const Role& role, int first_slice,
                const ExecutorOptions& options, StepInFlight& step);

  void begin_step(const StepInput& input, const Tensor& seed) override;
  void reach(int index, Interpreter& interpreter) override;
  void compute(const Action& action) override;
  double evaluate(const StepInput& input, const std::function<void()>& run) override;
  void abandon() override;
  void settle_loss() override;
  void settle(int bucket) override { side_.settle(bucket); }
  void settle_all() override { side_.settle_all(); }
  void take_changes(int bucket) override { side_.upload(bucket); }
  void acquire(int bucket, const Tensor& memory) override {
    side_.acquire(bucket, memory);
  }
  void release(int bucket) override { side_.release(bucket); }
  bool takes_shares() const override {
    return schedule_.shard == 3 && schedule_.mesh.size(Axis::kCut) == 1;
  }
  void has_summed(int bucket) override;
  std::vector<Statistic> statistics() override;
  void apply(std::span<const Statistic> statistics) override;
  int64_t peak_bytes() const override { return side_.lane().peak_bytes(); }
  BlockRunner& blocks() override { return blocks_; }
  int64_t rows(int slice) override { return batches_[slice].count; }

 private:
  const Batch& batch(int slice) override;
  DeviceRandom* random(int slice) override;
  void keep_loss(int slice, const WeightedLoss& loss) override;
  Tensor seed() override { return side_.seed(); }
  GradTarget home(int place, int slice) override;

  void cut_segments();
  bool finishes(const Action& action, int bucket) const;
  bool may_launch(const Segment& segment) const;
  void launch(Segment& segment);
  void run(const Segment& segment);
  void run(const Action& action);
  void capture(Segment& segment);
  Batch moved(const Batch& batch, int64_t step);

  const Chain& chain_;
  const Schedule& schedule_;
  const Role& role_;
  const FlatState& state_;
  const GradientSums& gradients_;
  const ExecutorOptions& options_;
  StepInFlight& step_;
  int first_slice_;
  std::set<std::pair<int, int>> recomputed_;  // blocks and slices
  std::vector<int> last_to_add_;              // by bucket: block
  DeviceSide side_;
  BlockRunner blocks_;
  std::vector<Segment> segments_;
  int warm_steps_ = 0;  // of the usual shape

  // What is known of the step in flight.
  std::vector<Batch> batches_;    // by slice
  size_t launched_ = 0;           // segments
  std::vector<bool> slot_taken_;  // of gradients, until their reduction is done
  bool replays_ = false;          // segments as graphs
  bool evaluates_ = false, loss_settled_ = false;
  double correct_ = 0;
};

}  // namespace cohort
