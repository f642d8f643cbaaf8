// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "cohort/engine/block_runner.h"
#include "cohort/engine/interpreter.h"
#include "cohort/engine/step_runner.h"

namespace cohort {

// Where the blocks of a rank compute: with memory of its own, or in that of the state.
// The others tell it what changed and ask for what it made; whether that is a copy, and
// when, is known here alone.
class ComputeSide {
 public:
  virtual ~ComputeSide() = default;

  // `seed`: the gradient of the loss, a scalar where blocks compute.
  virtual void begin_step(const StepInput& input, const Tensor& seed) = 0;
  // The interpreter is about to perform that action: work may be started ahead of it.
  virtual void reach(int, Interpreter&) {}
  // A Forward, Recompute or Backward. What was started ahead is not started again.
  virtual void compute(const Action& action) = 0;
  // Forwards of one batch that change nothing, in `run`. Returns right answers.
  virtual double evaluate(const StepInput& input, const std::function<void()>& run) = 0;
  // Drops all that is under way.
  virtual void abandon() = 0;

  // Until the loss, or gradients, are where the state is.
  virtual void settle_loss() {}
  virtual void settle(int) {}
  virtual void settle_all() {}

  // A bucket's parameters have changed.
  virtual void take_changes(int) {}
  // The parameters of a bucket that is cut are whole in `memory`; and are dropped.
  virtual void acquire(int, const Tensor&) {}
  virtual void release(int) {}
  // All of the parameters are this rank's own, and it has copies to compute with: they
  // are taken from the shares, and none is made whole.
  virtual bool takes_shares() const { return false; }
  // The gradient of a bucket has been summed: its memory may be used again.
  virtual void has_summed(int) {}

  // What all slices of this rank learned; and how the whole batch's change the chain's
  // buffers.
  virtual std::vector<Statistic> statistics() = 0;
  virtual void apply(std::span<const Statistic> statistics) = 0;

  virtual int64_t peak_bytes() const { return 0; }

  // Values that cross the borders of a stage; and samples of a slice.
  virtual BlockRunner& blocks() = 0;
  virtual int64_t rows(int slice) = 0;

 protected:
  ComputeSide() = default;
};

// Blocks and slices whose forward runs again before its backward, and keeps no graph.
std::set<std::pair<int, int>> recomputed_in(const Role& role);

// By bucket: the block of this chain whose backward is the last to add to its gradient.
std::vector<int> last_adders_of(const Chain& chain, const Schedule& schedule);

}  // namespace cohort
