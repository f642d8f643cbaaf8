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
#include "cohort/data/dataset.h"
#include "cohort/engine/flat_state.h"
#include "cohort/engine/gradient_sums.h"
#include "cohort/observe/meter.h"
#include "cohort/optim/loss_scale.h"
#include "cohort/optim/update_rule.h"
#include "cohort/step/block.h"
#include "cohort/step/schedule.h"
#include "cohort/step/step_times.h"

namespace cohort {

struct ExecutorOptions {
  DecayOptions decay;
  double clip = 0;  // largest norm of the gradient of the mean loss; 0: any
  uint64_t seed = 0;
  LossScaleOptions loss_scale;  // for float16
  double usual_count = 1;       // samples of a step; sums stay in range by it

  // Off: no bucket leaves the rank. For measuring what communication costs.
  bool communicate = true;
};

// What a step needs from outside.
struct StepInput {
  int64_t step = 0;  // counted from 0
  double rate = 0;
  std::function<Batch(int slice)> batch;  // of the global batch; called in order
  bool stop = false;  // this rank was asked to stop
  // Communication is waited for where it is started. For measuring what each costs.
  bool in_turn = false;
};

struct StepResult {
  double loss = 0;       // mean over the whole batch, on every rank
  double count = 0;      // samples, or whatever the loss counts
  bool stop = false;     // some rank was asked to stop: all know, and stop together
  bool skipped = false;  // the ranks voted against it: nothing changed
  double norm = 0;       // of the gradient, where the schedule asks for it
  StepSplit split;       // where this rank's time went
};

// Runs a Schedule on this rank: the actions of its role, in order; communication is
// started where the list says and waited for where another action needs it.
//
// Construction is collective: ranks compare the hash of their schedules (so that
// ranks that would run different programs never start) and take rank 0's weights.
// After an exception the executor is only good for destruction.
class Executor {
 public:
  Executor(Chain& chain, Schedule schedule, const UpdateRule& rule, Communicator& comm,
           const ExecutorOptions& options);
  ~Executor();

  StepResult run(const StepInput& input);

  // Runs a forward-only schedule: sum, count and correct answers of this rank's batch,
  // which may be empty. Collective where parameters are sharded.
  WeightedLoss evaluate(const Schedule& forward, const Batch& batch);

  // The float32 weights and the buffers, whole, under their names. Collective; only
  // rank 0 gets them.
  std::vector<NamedTensor> weights();

  // Collective. Throws, on every rank, unless parameters and buffers that several ranks
  // hold are the same on all of them: rank, tensor and step.
  void check_replicas(int64_t step);

  // Time that reducing all buckets takes with nothing beside it; collective.
  std::chrono::duration<double> time_communication();

  const Schedule& schedule() const { return schedule_; }
  const Role& role() const { return role_; }
  // Of the last step, by action of role(). Communication ends when it was waited for; it
  // begins when it was started and the one before it was done, or, where the rank's own
  // thread moves the bytes, when that turns to it.
  const std::vector<ActionTime>& times() const { return times_; }

 private:
  class Sink;
  struct Flight;  // a block's forward that waits for its backward
  struct Copy;    // what other ranks hold too

  void perform(const Role& role, size_t index, const StepInput& input);
  void begin(const Role& role);
  void finish(const Role& role, int index);

  void forward(const Action& action, const StepInput& input);
  void recompute(const Action& action);
  Values compute(const Action& action, const Values& inputs, bool again);
  void backward(const Action& action);
  void keep_gradient(int place, const Tensor& gradient, int slice);
  PendingWork reduce(const Action& action);
  PendingWork gather(const Action& action);
  void norm();
  PendingWork vote();
  void update(const Action& action);
  void fold_buffers();
  void commit();

  void visit_share(int bucket, int64_t begin, int64_t count, float* sum);
  void check_sum(int bucket, int64_t begin, int64_t count, const float* sum);
  bool sums_are_finite() const;
  StepScalars scalars() const;
  double seed_scale() const;
  void make_groups();
  void start_buffers_equal();
  void find_shared_places();
  Tensor master_of(int bucket);
  static Tensor part_of(const Place& place, const Tensor& flat, int64_t begin);
  std::vector<Copy> copies();

  Chain& chain_;
  Schedule schedule_;
  const Role& role_;
  const UpdateRule& rule_;
  Communicator& comm_;
  std::unique_ptr<Communicator> shard_comm_, replicate_comm_;  // of hybrid runs
  RankGroups groups_;
  ExecutorOptions options_;
  int first_slice_;
  bool fused_;  // reduction and update are one pass over memory
  bool moves_alone_;  // communication goes on while this thread computes
  std::vector<bool> recomputed_;  // by block: its forward keeps no graph
  FlatState state_;
  GradientSums gradients_;
  GradientSums::Visitor visitor_;
  std::optional<LossScale> loss_scale_;  // of float16
  std::unique_ptr<Sink> sink_;
  std::vector<bool> input_has_gradient_;   // by block
  std::vector<bool> shared_;               // by place: several blocks use it
  std::vector<int> last_to_add_;           // by bucket: block
  std::vector<std::vector<Tensor>> peer_parameters_;  // by bucket, by rank

  // Of the step in flight.
  std::vector<Flight> flights_;  // by block
  Values upstream_;              // gradients of the output of the next block down
  Tensor loss_;                  // doubles: sum, count, ranks asked to stop
  double correct_ = 0;
  Tensor votes_;
  Batch batch_;
  std::vector<Statistic> statistics_;
  std::vector<bool> written_;  // by place, in the slice at hand
  std::vector<PendingWork> pending_;               // by action
  std::vector<std::vector<int>> lanes_;            // actions in flight, by lane
  std::vector<double> lane_ends_;  // by lane: when the last of it was waited for
  std::vector<ActionTime> times_;
  std::chrono::steady_clock::time_point begun_;
  StepSplit split_;
  double rate_ = 0;
  double norm_ = 0;
  int64_t step_ = 0;
  bool evaluating_ = false;
  bool skipped_ = false;
  std::string not_finite_;  // what was found, if anything was
};

}  // namespace cohort
