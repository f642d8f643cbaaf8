// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/bench_train.h"

namespace cohort::cli {

// `cohort bench train RECIPE`: the recipe's chain, data, rule, batch and layout. Prints
// one row. Returns the exit code; throws ConfigError for what no step can be made of.
int run_bench_recipe(const BenchTrainArgs& args, const Recipe& recipe);

}  // namespace cohort::cli
