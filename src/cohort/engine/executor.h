// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/comm/communicator.h"
#include "cohort/comm/peer_memory.h"
#include "cohort/data/dataset.h"
#include "cohort/engine/flat_state.h"
#include "cohort/engine/gradient_sums.h"
#include "cohort/engine/state_seal.h"
#include "cohort/engine/step_runner.h"
#include "cohort/engine/step_sums.h"
#include "cohort/observe/meter.h"
#include "cohort/optim/loss_scale.h"
#include "cohort/optim/update_rule.h"
#include "cohort/step/block.h"
#include "cohort/step/schedule.h"
#include "cohort/step/step_times.h"

namespace cohort {

class DeviceSide;
struct Segment;

// Runs a Schedule on this rank: the actions of its role, in order; communication is
// started where the list says and waited for where another action needs it.
//
// Where blocks compute on a device, state stays with the host, which sums and updates.
// The device is then given work as far ahead as memory allows, in stretches that become
// CUDA graphs once their shapes are known; the host follows with what they finish.
//
// Construction is collective: ranks compare the hash of their schedules (so that
// ranks that would run different programs never start) and take rank 0's weights.
class Executor final : public StepRunner {
 public:
  Executor(Chain& chain, Schedule schedule, const UpdateRule& rule, Communicator& comm,
           const ExecutorOptions& options);
  ~Executor() override;

  StepResult run(const StepInput& input) override;
  WeightedLoss evaluate(const Schedule& forward, const Batch& batch) override;
  std::vector<NamedTensor> weights() override;
  ReplicaReport compare_replicas() override;
  std::vector<ActionWait> take_waits() override;
  std::vector<StatePiece> state(Holding which) override;
  void refresh() override;
  std::string small_state() override;
  void set_small_state(const std::string& text) override;
  Standing standing() const override;
  StepResult finish(bool skip) override;
  std::string damage() const override;
  int64_t device_peak_bytes() const override;

  // Time that reducing all buckets takes with nothing beside it; collective.
  std::chrono::duration<double> time_communication();
  const Schedule& schedule() const { return schedule_; }
  const Role& role() const { return role_; }
  // Of the last step, by action of role(). Communication ends when it was waited for;
  // it begins when it was started and the one before it was done, or, where the rank's
  // own thread moves the bytes, when that turns to it.
  const std::vector<ActionTime>& times() const { return times_; }

 private:
  class Sink;
  struct Flight;  // a block's forward that waits for its backward
  struct Copy;    // what other ranks hold too

  void perform(const Role& role, size_t index, const StepInput& input);
  void begin(const Role& role);
  void finish_inputs(const Role& role, size_t index);
  void finish_action(const Role& role, int index);
  StepResult result() const;
  void strike(int64_t index);
  void abandon();

  void compute(const Action& action, const StepInput& input);
  void forward(const Action& action, const StepInput& input);
  void recompute(const Action& action);
  void load_slice(const Action& action, const StepInput& input);
  Values run_block(const Action& action, const Values& inputs, bool again);
  void keep_loss(const Action& action, const WeightedLoss& loss);
  void backward(const Action& action);
  void keep_gradient(int place, const Tensor& gradient, int slice);
  PendingWork reduce(const Action& action);
  PendingWork mirror(const Action& action);
  PendingWork gather(const Action& action);
  Work move_shares(BucketState& state);
  void free_parameters(int bucket);
  void norm();
  void check_samples(const StepInput& input);
  PendingWork vote();
  void update(int bucket);
  void update_share(int bucket, ShareState& share, const Tensor& sum);
  void fold_buffers();
  void commit();
  void require_sound(const std::string& broken) const;
  void require_sound_gradients() const;

  void visit_share(int bucket, int64_t begin, int64_t count, float* sum);
  void check_sum(int bucket, int64_t begin, int64_t count, const float* sum);
  // All of what this rank has, or one part of as many.
  bool sums_are_finite(int part = 0, int parts = 1) const;
  void check_stretch(int bucket, const ShareState& share, const Tensor& sum,
                     int64_t at);
  [[noreturn]] void stop_for_bad_sum();
  void refresh_mirror(int bucket);
  StepScalars scalars() const;
  double seed_scale() const;
  void make_groups();
  void start_buffers_equal();
  void find_shared_places();
  Tensor master_of(int bucket);
  ShareRange owned_range(int bucket) const;
  static Tensor part_of(const Place& place, const Tensor& flat, int64_t begin);
  std::vector<Copy> copies();
  std::vector<Copy> mirrored_copies();

  // With a device (executor_device.cpp).
  void set_up_device();
  void cut_segments();
  bool finishes(const Action& action, int bucket) const;
  void start_device_step(const StepInput& input);
  void launch_ahead(int index, const StepInput& input);
  bool may_launch(const Segment& segment) const;
  void launch(Segment& segment, const StepInput& input);
  void compute(const Segment& segment, const StepInput& input);
  void capture(Segment& segment, const StepInput& input);
  void settle_loss();
  void settle_all();
  bool runs_ahead() const { return device_ && !evaluating_; }
  // At level 3: all of the parameters are this rank's own.
  bool uploads_directly() const {
    return device_ && schedule_.shard == 3 && groups_.shard->size() == 1;
  }
  GradientSums::Leaf leaf(int bucket, int slice) const;
  Batch on_device(const Batch& batch) const;

  Chain& chain_;
  Schedule schedule_;
  const Role& role_;
  const UpdateRule& rule_;
  Communicator& comm_;
  std::unique_ptr<Communicator> shard_comm_, replicate_comm_;  // of hybrid runs
  RankGroups groups_;
  ExecutorOptions options_;
  int first_slice_;
  bool fused_;                    // reduction and update are one pass over memory
  bool moves_alone_;              // communication goes on while this thread computes
  std::vector<bool> recomputed_;  // by block: its forward keeps no graph
  std::vector<std::vector<int>> inputs_in_lane_;  // by action: writers of what it reads
  FlatState state_;
  std::unique_ptr<StateSeal> seal_;  // null: nobody looks for flipped bits
  GradientSums gradients_;
  GradientSums::Visitor visitor_;
  std::optional<LossScale> loss_scale_;  // of float16
  std::unique_ptr<Sink> sink_;
  std::vector<bool> input_has_gradient_;              // by block
  std::vector<bool> shared_;                          // by place: several blocks use it
  std::vector<int> last_to_add_;                      // by bucket: block
  std::vector<std::vector<Tensor>> peer_parameters_;  // by bucket, by rank
  std::unique_ptr<DeviceSide> device_;                // null: the host computes
  std::vector<Segment> segments_;
  int warm_steps_ = 0;  // of the usual shape, on the device

  // Of the step in flight.
  std::vector<Flight> flights_;  // by block
  Values upstream_;              // gradients of the output of the next block down
  StepSums sums_;
  bool as_expected_ = false;  // what the ranks drew was compared
  double correct_ = 0;
  Tensor votes_;
  Batch batch_;
  std::vector<Statistic> statistics_;
  Standing standing_;
  std::vector<bool> updated_;            // by bucket
  std::vector<bool> written_;            // by place, in the slice at hand
  std::vector<PendingWork> pending_;     // by action
  std::vector<std::vector<int>> lanes_;  // actions in flight, by lane
  std::vector<double> lane_ends_;        // by lane: when the last of it was waited for
  std::vector<ActionTime> times_;
  std::vector<double> waits_;  // by action, over several steps
  std::chrono::steady_clock::time_point begun_;
  StepSplit split_;
  size_t launched_ = 0;           // segments
  std::vector<bool> slot_taken_;  // of gradients, until their reduction is done
  bool replays_ = false;          // segments as graphs
  int64_t step_ = 0;
  double rate_ = 0, norm_ = 0;
  bool loss_settled_ = false, evaluating_ = false, skipped_ = false;
  std::string not_finite_;  // what was found, if anything was
};

}  // namespace cohort
