// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "cohort/communicator.h"
#include "cohort/engine/step_runner.h"

namespace cohort {

// What a rank brings into a new world.
struct StateReport {
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

  int64_t committed = -1;      // steps that its state holds; -1: it has no whole state
  VoteState flight;            // how far the step after them came
  bool skipped = false;        // the last of them changed nothing
  bool begun = false;          // it had a state once: the run cannot begin anew
  int64_t known_good = 0;      // steps after which all copies were equal
  int64_t sound_until = kAll;  // what any rank holds of later steps is damaged
};

// Which step the run goes on from, and what a rank must do to be there.
struct Decision {
  int64_t committed = -1;  // steps; -1: nobody has a state that is whole and sound
  bool holds = false;      // this rank has that state, once it has finished
  bool finishes = false;   // it must finish its step in flight first,
  bool skip = false;       // which changes nothing
};

// A step is committed if one rank knows that its vote passed, or if all ranks that are
// left have voted: one of those that are lost may have known, and have said so. Before
// its vote a rank has everything that the step needs of others; so a rank that voted
// can finish it alone. And where one rank has not voted, nobody can have seen a result.
//
// If one rank knows of damage, states of later steps are nobody's: copies of them may
// differ, or may all have been computed from what was damaged.
Decision decide(std::span<const StateReport> reports, int rank);

// What all of them know together.
int64_t sound_until(std::span<const StateReport> reports);
int64_t known_good(std::span<const StateReport> reports);
bool any_begun(std::span<const StateReport> reports);

// Collective: every rank's report, by rank.
std::vector<StateReport> exchange_reports(Communicator& comm, const StateReport& mine);

}  // namespace cohort
