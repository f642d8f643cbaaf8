// SPDX-License-Identifier: Apache-2.0
// Wrong schedules for tests: whatever is done to a valid list, the checker refuses it
// or the step still does the same.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cohort/step/checker.h"
#include "cohort/step/schedule.h"

namespace cohort {

struct MutantOptions {
  // How many pairs of a role are exchanged, drawn with `seed`; 0: all pairs.
  int64_t most_exchanges = 0;
  uint64_t seed = 0;
};

struct Mutant {
  std::string what;  // "role 0: remove 12", "role 1: exchange 3 and 17"
  Schedule schedule;
};

// Every removal, every doubling, and exchanges of two actions of each role, with ids
// and waits renumbered. A wait for what was removed is dropped; one that points
// forward after an exchange stays, for the checker to refuse. The mutant is valid only
// during the call.
void for_each_mutant(const Schedule& schedule, const MutantOptions& options,
                     const std::function<void(const Mutant& mutant)>& visit);

// The same list with one thing changed that an action says: another version or buffer
// of a value that it reads or writes, another slice of it, another lane of its own
// kind, one wait less. Each of them, or `most_exchanges` of a role drawn with `seed`.
void for_each_altered(const Schedule& schedule, const MutantOptions& options,
                      const std::function<void(const Mutant& mutant)>& visit);

struct MutantVerdicts {
  int64_t refused = 0;
  std::vector<Mutant> accepted;
};

// What the checker says of each of them. Accepted ones must give the same weights.
MutantVerdicts judge_mutants(const Schedule& schedule,
                             const MutantOptions& options = {},
                             const CheckOptions& check_options = {});

}  // namespace cohort
