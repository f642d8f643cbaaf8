// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "cohort/step/block.h"
#include "cohort/step/layout.h"
#include "cohort/step/schedule.h"
#include "cohort/step/slices.h"

namespace cohort {

struct GeneratorOptions {
  int slices = 1;  // of the global batch, over all ranks

  // Buckets close when the next block would make them larger. Larger ones amortise
  // latency; smaller ones let communication start earlier.
  int64_t bucket_bytes = 25'000'000;

  // Updates may run while the rest of backward goes on. Off where a step must be
  // voted on first (elastic runs).
  bool overlap_updates = true;
};

// Parameters start at multiples of this many elements in a bucket: 64 bytes of
// float32, a cache line.
inline constexpr int64_t kAlignment = 16;

// Gradients are reduced in float32; the loss as three doubles: sum, count, and how
// many ranks were asked to stop.
inline constexpr int64_t kGradBytes = 4;
inline constexpr int64_t kLossBytes = 3 * 8;

// Elements a parameter takes in its bucket.
int64_t padded(int64_t numel);

std::vector<BlockSpec> specs_of(const Chain& chain);

// Data parallel, shard level 0: every rank holds everything, computes its slices,
// and buckets are reduced while backward goes on. ConfigError when there are more
// data-parallel ranks than slices, or the layout needs another generator.
Schedule generate(std::span<const BlockSpec> blocks, const Layout& layout,
                  const GeneratorOptions& options);

}  // namespace cohort
