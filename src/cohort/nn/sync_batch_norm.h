// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cohort/layers.h"
#include "cohort/nn/batch_norm_function.h"

namespace cohort {

// What was normalised together.
struct SyncedBatch : NormalizedBatch {
  double count = 0;   // elements of a channel
  double slices = 1;  // that have samples
};

// Batch normalisation of (N, C, ...) over the slices that data-parallel ranks compute
// at the same time: sums over the ranks once in forward and once in backward (Ioffe
// and Szegedy 2015, with the means of the whole batch).
SyncedBatch sync_batch_norm(const Tensor& input, const Tensor& weight,
                            const Tensor& bias, double eps, BlockCalls& calls);

// What a block with such a layer calls.
void declare_sync_batch_norm(TensorLists& tensors, int64_t channels);

}  // namespace cohort
