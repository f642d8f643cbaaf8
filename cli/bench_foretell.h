// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>

#include "cli/bench_train.h"

namespace cohort::cli {

// `cohort bench train CASE --device cuda --costs F`: what steps of the case would take
// on each number of GPUs in args.ranks, from a table of costs and published links. Runs
// nothing and needs no GPU; each row says so. ConfigError for a table that is another
// model's, or lacks links.
void foretell_cuda(const BenchTrainArgs& args, std::ostream& out);

}  // namespace cohort::cli
