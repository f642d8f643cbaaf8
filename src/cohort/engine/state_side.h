// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cohort/engine/gradient_sums.h"
#include "cohort/engine/pending_work.h"
#include "cohort/engine/step_runner.h"

namespace cohort {

// The end of a step: sums of gradients are looked at and voted on, and change the
// weights. Knows how far the step came, and can do what is missing of one that was
// voted on. One for each place where state can be: decisions are made there.
class StateSide {
 public:
  virtual ~StateSide() = default;
  StateSide(const StateSide&) = delete;
  StateSide& operator=(const StateSide&) = delete;

  // Before anything of the step is started: in an elastic run on a device its forwards
  // are under way while the step before may still have to be finished.
  virtual void begin_step(const StepInput& input) = 0;
  // What the step before has left may be written over.
  virtual void begin_changes(const StepInput&) {}
  // The gradient of the loss, a scalar where blocks compute.
  virtual Tensor seed() = 0;

  // Null where sums are kept: else what to do with one; and Error if one that it saw is
  // no number.
  virtual const GradientSums::Visitor* visitor() const { return nullptr; }
  virtual void require_finite() const {}

  virtual void norm() = 0;
  virtual void fold_buffers() = 0;
  // Nobody votes, nor commits, unless the ranks drew what the input expects. `faults`,
  // where there are any, are reached when this rank has looked and has not voted.
  virtual PendingWork vote(FaultPlan* faults) = 0;
  virtual void update(int bucket) = 0;
  virtual void commit() = 0;
  // All that begin_step() is followed by was started at once.
  virtual void has_replayed() {}
  // The last of a step that is started: what it came to goes on its way to the host.
  virtual void leave_result() {}
  // Until the host knows what the first step came to that it does not know of.
  virtual void settle() {}
  // Whether it knows of all.
  virtual bool is_settled() const { return true; }

  virtual VoteState vote_state() = 0;
  // Without peers, of a step that was voted on: what is missing.
  virtual void finish(bool skip) = 0;

  // The state was written from outside, and is what it should be from here on; what of
  // it is not any more, as one line.
  virtual void close_seals() {}
  virtual std::string damage() const { return ""; }

  // As in StepRunner.
  virtual std::string small_state() = 0;
  virtual void set_small_state(const std::string& text) = 0;

  // What a damaged memory would do: a bit of some kind of memory is another. At each
  // action it is another bit, or a second flip would undo the first.
  virtual void strike(FaultPlan& faults, int64_t index) = 0;

 protected:
  StateSide() = default;
};

}  // namespace cohort
