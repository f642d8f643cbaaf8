// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/train/resolved_run.h"

namespace cohort::cli {

// What one rank of `cohort train` does: hears signals, reports, trains. Returns its
// exit code; throws the library's errors.
int run_train_rank(const ResolvedRun& run);

}  // namespace cohort::cli
