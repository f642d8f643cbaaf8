// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/launch/agent.h"
#include "cohort/launch/rank_process.h"

// What an agent does before its first rank.
namespace cohort::process {

// ConfigError for options that contradict each other.
void check_options(const LaunchOptions& options);

// What a run may grow to.
int most_ranks(const ElasticOptions& elastic);

// Opens those of the descriptors 0, 1 and 2 that are closed: one of ours would take
// their place.
void hold_standard_streams();

// Fills in cores, threads and logs of a plan whose world is known. ConfigError if a
// log cannot be written.
void prepare(RankPlan& plan);

// Cores and logs for another number of ranks; threads of a rank stay. ConfigError, and
// nothing is changed, if the machine has no room for so many.
void prepare_resize(RankPlan& plan, int ranks);

}  // namespace cohort::process
