// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "cohort/data/dataset.h"
#include "cohort/step/block.h"
#include "cohort/step/cost_table.h"
#include "cohort/step/schedule.h"

namespace cohort::cli {

// Runs every block forward and backward here, on two small batches, in float32 and with
// one thread, and fills in what a slice of `samples` takes: the bytes of each spec, and
// the seconds of each block of `costs`. Both are taken to grow in a straight line.
void probe_blocks(Chain& chain, const Dataset& data, int64_t samples,
                  std::vector<BlockSpec>& specs, CostTable& costs);

}  // namespace cohort::cli
