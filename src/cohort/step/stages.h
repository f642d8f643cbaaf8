// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "cohort/step/schedule.h"

namespace cohort {

// ConfigError unless each of so many places has a block.
void require_stages(size_t blocks, int places);

// Cuts a chain into as many stages as places, in order, so that the most costly one
// costs least. Where nobody counted, a block costs what its parameters are. ConfigError
// if there are fewer blocks than places.
std::vector<Stage> make_stages(std::span<const BlockSpec> blocks, int places);

}  // namespace cohort
