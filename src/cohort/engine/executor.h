// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/comm/communicator.h"
#include "cohort/comm/peer_memory.h"
#include "cohort/data/dataset.h"
#include "cohort/engine/flat_state.h"
#include "cohort/observe/meter.h"
#include "cohort/optim/update_rule.h"
#include "cohort/step/block.h"
#include "cohort/step/schedule.h"

namespace cohort {

struct ExecutorOptions {
  int first_slice = 0;  // of the global batch, that is this rank's
  DecayOptions decay;
  uint64_t seed = 0;

  // Off: no bucket leaves the rank. For measuring what communication costs.
  bool communicate = true;
};

// What a step needs from outside.
struct StepInput {
  int64_t step = 0;  // counted from 0
  double rate = 0;
  std::function<Batch(int slice)> batch;  // of the global batch; called in order
  bool stop = false;  // this rank was asked to stop
};

struct StepResult {
  double loss = 0;   // mean over the whole batch, on every rank
  double count = 0;  // samples, or whatever the loss counts
  bool stop = false;  // some rank was asked to stop: all know, and stop together
  StepSplit split;   // where this rank's time went
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

  // Forward alone, on this rank alone: sum, count and correct answers.
  WeightedLoss evaluate(const Batch& batch);

  // Time that reducing all buckets takes with nothing beside it; collective.
  std::chrono::duration<double> time_communication();

  const Schedule& schedule() const { return schedule_; }

 private:
  class Sink;
  struct Flight;  // a block's forward that waits for its backward

  void perform(size_t index, const StepInput& input);
  void forward(const Action& action, const StepInput& input);
  void backward(const Action& action);
  void reduce(size_t index, const Action& action);
  void update(const Action& action);
  void fold_buffers();
  void commit();

  void wait_for(const Action& action);
  void keep_gradient(const Place& place, const Tensor& gradient, bool first);
  void visit_share(int bucket, int64_t begin, int64_t count, float* sum);
  StepScalars scalars() const;
  void map_bucket_peers();
  void start_equal();

  Chain& chain_;
  Schedule schedule_;
  const Role& role_;
  const UpdateRule& rule_;
  Communicator& comm_;
  PeerMemory* peer_memory_;  // null: reduce, then update
  ExecutorOptions options_;
  FlatState state_;
  std::unique_ptr<Sink> sink_;

  // Of the step in flight.
  std::vector<Flight> flights_;  // by block
  Values upstream_;              // gradients of the output of the next block down
  Tensor loss_;                  // doubles: sum, count, ranks asked to stop
  Batch batch_;
  std::vector<Statistic> statistics_;
  std::vector<Work> works_;  // by action
  StepSplit split_;
  double rate_ = 0;
  int64_t step_ = 0;

  std::vector<std::vector<Tensor>> peer_parameters_;  // by bucket, by rank
};

}  // namespace cohort
