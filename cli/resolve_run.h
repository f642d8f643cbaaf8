// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/train_command.h"
#include "cohort/train/resolved_run.h"
#include "recipes/recipe_list.h"

namespace cohort::cli {

// The one place where flags, keys, the environment and the machine become a run.
// Refuses what cannot be had, before any rank starts: ConfigError; CheckpointError for
// saved state that cannot be read. Runs no tensor kernel and starts no thread: the
// caller may fork.
ResolvedRun resolve_run(const TrainArgs& args, const RecipeList& recipes);

// The same of keys that have their values already, for a process that is a rank.
ResolvedRun resolve_rank(const TrainArgs& args, const Recipe& recipe,
                         const Config& config);

}  // namespace cohort::cli
