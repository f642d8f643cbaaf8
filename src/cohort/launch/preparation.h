// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/launch/agent.h"
#include "cohort/launch/generation.h"

// What an agent does before its first rank.
namespace cohort::process {

// ConfigError for options that contradict each other.
void check_options(const LaunchOptions& options);

// Opens those of the descriptors 0, 1 and 2 that are closed: one of ours would take
// their place.
void hold_standard_streams();

// Fills in cores, threads and logs of a plan whose world is known. ConfigError if a
// log cannot be written.
void prepare(RankPlan& plan);

}  // namespace cohort::process
