// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "cohort/block.h"
#include "cohort/data/dataset.h"
#include "cohort/engine/block_measure.h"

namespace cohort {

// The form of a tensor that crosses a block's border, for any number of samples.
struct CountedValue {
  at::ScalarType dtype = at::kFloat;
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
  std::vector<Line> dims;

  std::vector<int64_t> shape(int64_t samples) const;
};

// What one block needs and does for a slice, as far as that can be known without
// computing anything.
struct BlockCount {
  // Without times. FLOPs are those of products and convolutions: 2 for each
  // multiplication with its addition.
  BlockMeasure needs;
  std::vector<CountedValue> outputs;  // the last block's: the sum of the losses
};

// Runs forward and backward of a chain without memory (ModelsWithoutMemory) on the meta
// device, and notes what measure_blocks() would see: same lines, no computing, a few
// milliseconds. `batch(n)` gives n samples on the meta device.
//
// An estimate: what a kernel allocates inside is known of our layers' kernels alone,
// and other libraries' own memory is not, so scratch may be too low. Kept activations
// and outputs are those of a real run.
//
// Nothing if a block uses an operation that the meta device does not have: then they
// can be measured.
std::optional<std::vector<BlockCount>> count_blocks(
    const Chain& on_meta, const std::function<Batch(int64_t)>& batch, int64_t samples);

// The same for samples of a data set's form.
std::optional<std::vector<BlockCount>> count_blocks(const Chain& on_meta,
                                                    const Dataset& data);

std::vector<BlockMeasure> needs_of(std::span<const BlockCount> counts);

// What was measured says nothing of FLOPs.
void take_flops(std::span<const BlockCount> counts, std::span<BlockMeasure> measures);

// The sum over all blocks.
Line forward_flops(std::span<const BlockCount> counts);

}  // namespace cohort
