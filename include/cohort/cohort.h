// SPDX-License-Identifier: Apache-2.0
#pragma once

// All of the public library. docs/api.md says what each header is for; one alone
// compiles a little faster.

#include "cohort/block.h"          // IWYU pragma: export
#include "cohort/block_call.h"     // IWYU pragma: export
#include "cohort/checkpoint.h"     // IWYU pragma: export
#include "cohort/communicator.h"   // IWYU pragma: export
#include "cohort/config.h"         // IWYU pragma: export
#include "cohort/data.h"           // IWYU pragma: export
#include "cohort/data_parallel.h"  // IWYU pragma: export
#include "cohort/elastic.h"        // IWYU pragma: export
#include "cohort/error.h"          // IWYU pragma: export
#include "cohort/layers.h"         // IWYU pragma: export
#include "cohort/program.h"        // IWYU pragma: export
#include "cohort/rate_schedule.h"  // IWYU pragma: export
#include "cohort/recipe.h"         // IWYU pragma: export
#include "cohort/session.h"        // IWYU pragma: export
#include "cohort/sharded.h"        // IWYU pragma: export
#include "cohort/step.h"           // IWYU pragma: export
#include "cohort/tensor.h"         // IWYU pragma: export
#include "cohort/trainer.h"        // IWYU pragma: export
#include "cohort/update_rule.h"    // IWYU pragma: export
#include "cohort/version.h"        // IWYU pragma: export
#include "cohort/work.h"           // IWYU pragma: export
