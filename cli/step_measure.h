// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/step_command.h"

namespace cohort::cli {

// `cohort step RECIPE --measure STEPS`: starts the ranks, runs the step, and hands rank
// 0 (in its process) a view with what was measured. Returns the exit code.
//
// Steps come in two kinds, by turns. For costs, communication is waited for where it is
// started, at the batch sizes of args.costs_at; for times, the step runs as it does in
// training. All are run by one executor, so that memory and caches are the same.
int measure_step(const StepArgs& args, const RecipeList& recipes,
                 void (*show)(const StepArgs&, const StepView&));

}  // namespace cohort::cli
