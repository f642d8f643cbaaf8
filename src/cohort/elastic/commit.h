// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cohort/comm/communicator.h"
#include "cohort/engine/step_runner.h"

namespace cohort {

// What a rank brings into a new world.
struct Stand {
  int64_t committed = -1;  // steps that its state holds; -1: it has no state
  Standing flight;         // how far the step after them came
  bool skipped = false;    // the last of them changed nothing
};

// Which step the run goes on from, and what a rank must do to be there.
struct Decision {
  int64_t committed = -1;  // steps; -1: nobody has a state
  bool holds = false;      // this rank has that state, once it has finished
  bool finishes = false;   // it must finish its step in flight first,
  bool skip = false;       // which changes nothing
};

// A step is committed if one rank knows that its vote passed, or if all ranks that are
// left have voted: one of those that are lost may have known, and have said so. Before
// its vote a rank has everything that the step needs of others; so whoever voted can
// finish it alone. And where one rank has not voted, nobody can have seen a result.
Decision decide(std::span<const Stand> stands, int rank);

// Collective: every rank's stand, by rank.
std::vector<Stand> exchange_stands(Communicator& comm, const Stand& mine);

}  // namespace cohort
