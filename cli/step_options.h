// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/config/config.h"
#include "cohort/step/checker.h"
#include "cohort/step/generator.h"

namespace cohort::cli {

// How the keys of a run say that its step is made. `exact` is the flag; slices are those
// of the key, or with --exact 8, or 0: one a data-parallel rank.
GeneratorOptions step_options(const Config& config, bool exact);

// What memory.limit and elastic ask of it.
CheckOptions check_options(const Config& config);

}  // namespace cohort::cli
