// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "cohort/launch/process_tree.h"

namespace cohort::process {

// How many spares an elastic run is to have, and when to start those that are missing.
//
// Two kinds: those that the user wanted, and ranks that make no whole team and wait for
// others. Where nobody is replaced, each one that is used or dies is one fewer.
class SparePlan {
 public:
  struct Counts {
    int wanted = 0;
    int waiting = 0;  // beside those
  };

  // `replaces`: a process that is used or dies gets a successor.
  SparePlan(int wanted, bool replaces) : counts_{wanted, 0}, replaces_(replaces) {}

  const Counts& counts() const { return counts_; }
  int count() const { return counts_.wanted + counts_.waiting; }
  void set_counts(const Counts& counts) { counts_ = counts; }
  void set_waiting(int ranks) { counts_.waiting = ranks; }
  // One took a place, or is lost.
  void lose_one();

  // One died before it came to where spares wait. True if it was one too many: from
  // here on none is started.
  bool died_on_its_way();
  void arrived() { deaths_ = 0; }
  bool is_given_up() const;

  // When those that are missing are to be started. A spare loads what a rank does, so
  // it starts when the ranks have had time for that.
  Clock::time_point start_at() const { return start_at_; }
  void start_later(Clock::time_point now);  // than was planned, or for the first time
  void start_soon(Clock::time_point now);   // or earlier, if that is planned
  void started() { start_at_ = Clock::time_point::max(); }

 private:
  Counts counts_;
  bool replaces_;
  int deaths_ = 0;  // on the way, one after another
  Clock::time_point start_at_ = Clock::time_point::max();
};

}  // namespace cohort::process
