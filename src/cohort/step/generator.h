// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "cohort/block.h"
#include "cohort/step/block_choice.h"
#include "cohort/step/layout.h"
#include "cohort/step/pipeline.h"
#include "cohort/step/schedule.h"
#include "cohort/step/slices.h"

namespace cohort {

// Where a rank's memory is.
enum class MemoryIn {
  kHost,
  kDevice,
};

struct GeneratorOptions {
  int slices = 1;  // in the global batch, over all ranks

  PipelineOptions pipeline;  // where the layout has several places

  // Buckets close when the next block would make them larger. Larger ones amortise
  // latency; smaller ones let communication start earlier. At shard level 3 each block
  // has its own.
  int64_t bucket_bytes = 25'000'000;

  // Updates may run while the rest of backward goes on. A Norm or a Vote forbids it.
  bool overlap_updates = true;
  bool clip = false;  // a Norm of the whole gradient before the updates
  // The update rule has sums over tensors: a Norm makes them, of gradients and state.
  bool tensor_sums = false;
  bool vote = false;  // no update before all ranks know that the step is good

  // The step can be finished by the ranks that are left: statistics are folded before
  // the Vote, which it implies, and the sums of shards are mirrored.
  bool elastic = false;

  // Blocks that keep their input alone, and make the rest again in backward.
  BlockChoice recompute;
  int prefetch = 1;  // uses of parameters that are gathered ahead (level 3)
  // With MemoryIn::kDevice: optimizer state, and float32 weights that blocks do not
  // compute with, in the host's memory, where the device updates them in place.
  bool offload = false;
  // Parameters too: a block's are on the device only while it computes. The state is
  // cut as at shard level 3, also where there is nobody to cut it for.
  bool offload_parameters = false;
  bool forward_only = false;
  // A data-parallel rank without others makes the calls of several, at the layout's
  // shard level: what they cost where there is nobody to wait for.
  bool meets_alone = false;
  // A step may begin before the one before it has ended.
  bool run_ahead = false;

  bool exact = false;
  Precision precision;
  MemoryIn memory = MemoryIn::kHost;
  int optimizer_states = 1;    // tensors an update rule keeps beside the weights
  bool shares_memory = false;  // ranks of a shard group reach each other's memory
  // Shards of so many bytes, or a multiple, are seen as one memory; 0: they are copied.
  int64_t join_alignment = 0;
};

// Parameters start at multiples of this many elements in a bucket, and shards are cut
// at them: so a chunk belongs to one parameter and one rank at every world size.
inline constexpr int64_t kChunk = 1024;

// The loss travels with the other small sums of a step (engine/step_sums.h): six
// doubles.
inline constexpr int64_t kLossBytes = 6 * 8;
inline constexpr int64_t kVoteBytes = 8;

// Elements a parameter takes in its bucket.
int64_t padded(int64_t numel);

std::vector<BlockSpec> specs_of(const Chain& chain);

// What the forwards of that role take of a batch, each field once. Nothing in the
// middle of a pipeline.
std::vector<std::string> fields_of(const Chain& chain, const Role& role);

// The step of a model under a layout. ConfigError when there are more data-parallel
// ranks than slices, or no generator makes such a layout.
Schedule generate(std::span<const BlockSpec> blocks, const Layout& layout,
                  const GeneratorOptions& options);

}  // namespace cohort
