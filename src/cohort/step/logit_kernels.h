// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cohort/tensor.h"

namespace cohort {

// A loss over tokens passes over its logits once forward and once backward, where a
// device has kernels for that. A row is a token; columns behind the first `columns` are
// padding. Logits are contiguous, of float32, bfloat16 or float16; `places` (int64) are
// the columns of the targets, negative where a target is not among these.
//
// Starts work on the calling thread's current stream and waits for nothing. BugError
// for tensors that do not fit. Thread safety: none. Outlives all graphs of steps.
class LogitKernels {
 public:
  virtual ~LogitKernels() = default;

  // By row, float64: the logarithm of the sum of exponentials, and the logit at the
  // target, 0 where there is none.
  virtual void row_numbers(const Tensor& logits, int64_t columns, const Tensor& places,
                           const Tensor& log_sums, const Tensor& targets) = 0;

  // Turns logits into factor (softmax - 1 at the target), in rows that do not count and
  // in padding into 0. `factor` is one float64, `counted` bool, by row.
  virtual void turn_into_gradient(const Tensor& logits, int64_t columns,
                                  const Tensor& places, const Tensor& log_sums,
                                  const Tensor& counted, const Tensor& factor) = 0;
};

}  // namespace cohort
