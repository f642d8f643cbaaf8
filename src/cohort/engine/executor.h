// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/communicator.h"
#include "cohort/engine/action_lanes.h"
#include "cohort/engine/checked_calls.h"
#include "cohort/engine/compute_side.h"
#include "cohort/engine/flat_state.h"
#include "cohort/engine/gradient_sums.h"
#include "cohort/engine/interpreter.h"
#include "cohort/engine/rank_groups.h"
#include "cohort/engine/state_home.h"
#include "cohort/engine/state_side.h"
#include "cohort/engine/state_view.h"
#include "cohort/engine/step_batches.h"
#include "cohort/engine/step_graph.h"
#include "cohort/engine/step_in_flight.h"
#include "cohort/engine/step_runner.h"
#include "cohort/engine/transfers.h"
#include "cohort/step/schedule.h"

namespace cohort {

// Runs a Schedule on this rank: the actions of its role, in order; communication is
// started where the list says and waited for where another action needs it.
//
// It puts the parts together and gives each action to the part that performs it: blocks
// to the compute side, exchanges to the transfers, the end of a step to the state side.
// The interpreter knows the order.
//
// Construction is collective: ranks compare their blocks, then their schedules (so that
// ranks that would run different programs never start), and begin with the same weights
// (FirstWeights).
class Executor final : public StepRunner, private Performer {
 public:
  Executor(Chain& chain, Schedule schedule, const UpdateRule& rule, Communicator& comm,
           const ExecutorOptions& options, const ExecutorServices& services = {});
  ~Executor() override;

  // On a device start() waits for nothing. In an elastic run the step that is started
  // second is begun up to its first backward; its rest is started when the first one's
  // result is known, by the next start() or result().
  void start(const StepInput& input) override;
  StepResult result() override;
  bool runs_ahead() const override {
    return lane_ && (!schedule_.elastic || ahead_ > 0);
  }
  // Whether steps of the usual shapes are replayed as graphs.
  bool captured() const { return graph_ && graph_->captured(); }
  WeightedLoss evaluate(const Schedule& forward, const Batch& batch) override;
  Values outputs(const Schedule& forward, const Batch& batch, Block& last) override;
  uint64_t weights_hash() override { return view_.weights_hash(); }
  ReplicaReport compare_replicas() override { return view_.compare_replicas(); }
  std::vector<ActionWait> take_waits() override { return interpreter_.take_waits(); }
  std::vector<StatePiece> state(Holding which) override { return view_.pieces(which); }
  void refresh() override;
  std::string small_state() override { return end_->small_state(); }
  void set_small_state(const std::string& text) override {
    end_->set_small_state(text);
  }
  VoteState vote_state() override;
  StepResult finish(bool skip) override;
  std::string damage() const override { return end_->damage(); }
  int64_t device_peak_bytes() const override { return lane_ ? lane_->peak_bytes() : 0; }

  // Time that reducing all buckets takes with nothing beside it; collective.
  std::chrono::duration<double> time_communication();
  // All memory that a value of a bucket may lie in, as far as this rank holds it
  // between actions: a gradient's, that of parameters, or of a state.
  std::vector<Tensor> memory_of(const Value& value) const;
  const Schedule& schedule() const { return schedule_; }
  const Role& role() const { return role_; }
  // Times of the last step, by action of role(). Communication ends when waited for;
  // it begins when it was started and the one before it was done, or, where the rank's
  // own thread moves the bytes, when that turns to it.
  const std::vector<ActionTime>& times() const { return interpreter_.times(); }

 private:
  class Evaluation;

  void reach(int index) override;
  PendingWork perform(int index) override;
  PendingWork act(int index);
  void done(int index) override;
  bool comes_late(int lane) const override;
  std::unique_ptr<ComputeSide> make_compute();
  std::unique_ptr<StepBatches> make_batches(int first_slice);
  std::unique_ptr<StateSide> make_end(const UpdateRule& rule);
  PendingWork reduce(const Action& action);
  ComputeSide::Answers run_forwards(const Schedule& forward, const Batch& batch,
                                    Block* last, Values* outputs);
  void start_buffers_equal();
  void in_lane(const std::function<void()>& work);
  void go_on();
  void start_rest(const StepInput& input);
  void run_list(int first, int end, const StepInput& input);
  int size_of_list() const { return static_cast<int>(role_.actions.size()); }
  StepResult sums_of_step() const;
  template <typename Work>
  void or_abandon(const Work& work);
  void abandon();
  void drop_held_back();

  Chain& chain_;
  const Schedule schedule_;
  const Role& role_;
  Communicator& comm_;
  const ExecutorOptions options_;
  const ExecutorServices services_;
  const bool updates_at_once_;  // reduction and update are one pass over memory
  const StateHome home_;
  std::unique_ptr<CudaLane> lane_;  // null: blocks do not compute where state lies
  // So many of its actions are started before the last step is known; 0: none alone.
  const int ahead_;
  RankChannels channels_;
  CheckedCalls calls_;
  StepInFlight step_;
  std::optional<StepInput> held_back_;  // a step of which those alone are started
  FlatState state_;
  GradientSums gradients_;
  std::unique_ptr<StepGraph> graph_;    // null where there is no lane
  std::unique_ptr<ActionLanes> lanes_;  // null: the host starts what a lane has next
  std::unique_ptr<ComputeSide> compute_;
  std::unique_ptr<StateSide> end_;
  Transfers transfers_;
  StateView view_;
  Interpreter interpreter_;
  std::unique_ptr<Evaluation> evaluation_;  // for the schedule evaluated last
};

}  // namespace cohort
