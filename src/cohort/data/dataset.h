// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "cohort/data.h"

namespace cohort {

// ConfigError unless the set has all of `fields`: says which one it lacks, and what it
// has.
void require_fields(const Dataset& data, std::span<const std::string> fields);

}  // namespace cohort
