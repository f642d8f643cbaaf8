// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "faults/scenario.h"
#include "faults/strike.h"

namespace cohort::threads {

// How often each point was passed on each rank.
using Passes = std::map<std::pair<std::string, int>, int64_t>;

// What strikes in one run.
using Case = std::vector<Strike>;

// All passes of a run of `scenario`, each with the faults that fit its place.
std::vector<Strike> all_strikes(const Scenario& scenario, const Passes& passes);

// The run that ends as those of `scenario` shall.
Scenario undisturbed(Scenario scenario);

// In the long form, all. In the short one, one strike of each point and kind; one that
// may miss only where none is sure to come. Runs that pass the same points take turns, so
// that each strikes a third of them: the undisturbed runs that differ in layout alone,
// and the runs of one plot, at points that the undisturbed run of the same layout passes
// too.
std::vector<Strike> choose(std::vector<Strike> all, const Scenario& scenario,
                           const Passes& undisturbed);

// Those that COHORT_CASE and COHORT_PART leave.
std::vector<Case> part_of(std::vector<Case> all);

// Cases, with the hash that runs of them shall end with, in a file for another process.
using CaseList = std::pair<std::string, std::vector<Case>>;
void write_cases(const std::string& path, const CaseList& list);
CaseList read_cases(const std::string& path);  // none if there is no file

}  // namespace cohort::threads
