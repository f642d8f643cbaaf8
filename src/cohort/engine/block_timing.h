// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>

#include "cohort/block.h"
#include "cohort/engine/block_count.h"
#include "cohort/step/cost_table.h"

namespace cohort {

// Runs forward and backward of one block here, in float32, and takes the shorter of two
// times: at 2 and at 4 samples, or at one where that alone takes long. `counts` are
// those of the chain: they say what form the values have that the block before would
// give. `batch(n)` gives n samples.
//
// Parameters of the chain may be filled later (ModelsFilledLater): then those of the
// block get memory, which they keep, and no others.
BlockCost time_block(const Chain& chain, int block, std::span<const BlockCount> counts,
                     const std::function<Batch(int64_t)>& batch);

// What a block would take that is not run: its counted FLOPs at so many per second,
// and its activations at the speed that is guessed of memory. A backward: twice both.
BlockCost cost_of_flops(const BlockMeasure& needs, double flops_per_second);

// FLOPs per second of a product of matrices here, in float32.
double product_rate();

}  // namespace cohort
