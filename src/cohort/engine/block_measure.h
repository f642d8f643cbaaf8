// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "cohort/block.h"
#include "cohort/data/dataset.h"
#include "cohort/step/cost_table.h"
#include "cohort/step/schedule.h"

namespace cohort {

// A number that grows with the samples of a slice.
struct Line {
  double fixed = 0;
  double per_sample = 0;

  double at(double samples) const { return fixed + per_sample * samples; }
};

// What one block needs for a slice.
struct BlockMeasure {
  Line activation_bytes;  // kept from forward to backward, with the output
  Line output_bytes;
  Line scratch_bytes;   // the most that forward or backward needs beside them
  Line deferred_bytes;  // kept from BackwardInput to BackwardWeight
  BlockCost seconds;
  Line flops;  // FLOPs of its forward; 0: nobody counted (engine/block_count.h)
};

// Runs forward and backward of every block on few samples and on twice as many, and
// draws a line through both. Changes nothing. `batch(n)` gives n samples. In float32,
// whatever the run will compute in: a processor without instructions for a narrow type
// may take minutes.
std::vector<BlockMeasure> measure_blocks(const Chain& chain,
                                         const std::function<Batch(int64_t)>& batch,
                                         int64_t samples);

// So many samples of a data set, with what the chain takes of them: the first ones,
// again and again where it has fewer. ConfigError if it lacks a field.
Batch some_samples(const Chain& chain, const Dataset& data, int64_t count);

// The same with a few samples of a data set.
std::vector<BlockMeasure> measure_blocks(const Chain& chain, const Dataset& data);

// Writes what slices of `samples` samples, computed in that dtype, need, and what each
// block costs beside the others, into the specs of the same chain.
void set_bytes(std::span<const BlockMeasure> measures, double samples,
               at::ScalarType compute, std::span<BlockSpec> specs);

}  // namespace cohort
