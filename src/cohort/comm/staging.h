// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/tensor.h"

namespace cohort {

// Communicators move memory, not values with a history: what they copy is as if it were
// written by another process. Nothing here is recorded, and a leaf that requires a
// gradient, or a tensor of inference mode, is written like any other.

// The values of `tensor`, contiguous: itself, or a copy.
Tensor contiguous_copy(const Tensor& tensor);
// Contiguous, of the same shape and type, with no values yet.
Tensor contiguous_like(const Tensor& tensor);
// Writes `from` into `to`, which has as many elements.
void copy_into(const Tensor& to, const Tensor& from);

}  // namespace cohort
