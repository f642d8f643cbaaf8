// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "cohort/step/pipeline.h"
#include "cohort/step/schedule.h"

namespace cohort {

// Cuts a chain into the stages of so many places, in order; stage s is at place
// s % places. Where the options do not say where, so that the stage that takes longest
// takes least: by the costs of the options, or else of the specs. Where nobody counted,
// a block costs what its parameters are. ConfigError as require_stages() says.
std::vector<Stage> make_stages(std::span<const BlockSpec> blocks, int places,
                               const PipelineOptions& options = {});

}  // namespace cohort
