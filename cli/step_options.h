// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/config/config.h"
#include "cohort/step/checker.h"
#include "cohort/step/generator.h"

namespace cohort::cli {

// How the keys of a run say its step is to be made. `ranks`: data-parallel ones; the
// default number of slices is theirs, or kExactSlices where bits must not depend on
// them. ConfigError for a size that is none, or for more ranks than slices.
inline constexpr int kExactSlices = 8;
GeneratorOptions generator_options(const Config& config, int ranks, bool exact);

// memory.limit and elastic.
CheckOptions check_options(const Config& config);

}  // namespace cohort::cli
