// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <deque>
#include <vector>

#include "cohort/engine/pending_work.h"
#include "cohort/engine/step_runner.h"
#include "cohort/step/schedule.h"
#include "cohort/step/step_times.h"

namespace cohort {

// Does what the actions of a list say.
class Performer {
 public:
  virtual ~Performer() = default;

  // Before anything is waited for; and when all that the action needs is there.
  virtual void reach(int index) = 0;
  virtual PendingWork perform(int index) = 0;
  virtual void done(int) {}
  // Communication of that lane starts when something waits for it, or at the end of the
  // list: as late as what the actions declare allows. For tests.
  virtual bool comes_late(int) const { return false; }

 protected:
  Performer() = default;
};

// The order of a step: starts the actions of a role as its list says, and waits for
// what each of them needs. A lane is a queue that this thread advances, first in, first
// out. Borrows schedule and role. Thread safety: none.
class Interpreter {
 public:
  // `moves_alone`: communication goes on while this thread computes.
  Interpreter(const Schedule& schedule, const Role& role, bool moves_alone);

  // `in_turn`: communication but Sends is waited for where it is started.
  void run(Performer& performer, bool in_turn = false);
  // The same up to that action; the next call goes on from there. What is in flight
  // then stays so.
  void run_to(int end, Performer& performer, bool in_turn = false);
  // Drops what is in flight: it ends at once, for it is broken, or with the peers,
  // which have come to it or will.
  void abandon();

  // Waits for an action of the list, and for all before it in its lane.
  void finish(int index);
  // For the newest action in a lane, if one is in flight.
  void finish_lane(int lane);

  const Role& role() const { return role_; }
  // Times of the last run, by action.
  const std::vector<ActionTime>& times() const { return times_; }
  // Seconds that this thread was held up in the last run.
  double waited() const { return waited_; }
  // Since the last call, over several runs: by communication, or all of it together
  // along a pipeline, where ranks have different ones.
  std::vector<ActionWait> take_waits();

 private:
  void begin();
  void end();
  void start(int index);
  void start_late(int lane, int last);
  void start_late_sends();
  void finish_inputs(int index);
  void drop_sent(int lane);
  double now() const;

  const Role& role_;
  bool moves_alone_;
  int lanes_count_;
  std::vector<std::vector<int>> inputs_in_lane_;  // by action
  bool is_staged_;                                // the list is of a pipeline
  std::vector<bool> is_collective_;               // by action: all of a group have it
  std::vector<PendingWork> pending_;              // by action
  std::vector<std::vector<int>> lanes_;           // actions in flight, by lane
  std::vector<std::deque<int>> late_;             // not yet started, by lane
  Performer* performer_ = nullptr;                // for the run at hand
  int next_ = 0;                                  // action of it
  bool in_turn_ = false, starts_sends_ = false;
  std::vector<double> lane_ends_;  // by lane: when the last of it was waited for
  std::vector<ActionTime> times_;
  std::vector<double> waits_;  // by action, over several runs
  double waited_ = 0;
  std::chrono::steady_clock::time_point begun_;
};

}  // namespace cohort
