// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/config/config.h"
#include "cohort/step/checker.h"
#include "cohort/step/generator.h"

namespace cohort::cli {

// float32, bf16 or fp16; `otherwise` for any other name.
at::ScalarType parse_dtype(const std::string& name, at::ScalarType otherwise);

// How the keys of a run say that its step is made. `exact` is the flag; slices are those
// of the key, or with --exact 8, or 0: one a data-parallel rank.
GeneratorOptions step_options(const Config& config, bool exact);

// What memory.limit and elastic ask of it.
CheckOptions check_options(const Config& config);

}  // namespace cohort::cli
