// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cohort/comm/nccl/nccl_library.h"
#include "cohort/communicator.h"

// What a Communicator promises of reductions and NCCL does not do by itself: narrow
// types are added in float32 and rounded once, a mean is divided once, a NaN wins. All
// of it is work of the device that the tensors are on, unrecorded.
namespace cohort::nccl_backend {

// NCCL rounds a narrow type each time it adds, and a mean needs the sum unrounded: such
// sums go by parts (see NcclCommunicator) and not through prepared().
bool sums_by_parts(at::ScalarType dtype, ReduceOp op, int size);

// What NCCL reduces for `tensor`, contiguous: its own memory where that will do. The
// largest of floating values are found among integers of the same order, in which a NaN
// is beyond all others: NCCL's own drops it.
Tensor prepared(const Tensor& tensor, ReduceOp op);
RedOp reduction_of(ReduceOp op);
// The result as values of `dtype`, from what NCCL made of `reduced`; may overwrite it.
Tensor restored(const Tensor& reduced, at::ScalarType dtype, ReduceOp op, int size);

// The sum or mean of the rows of `parts`, of a narrow type, in the order of ranks.
Tensor sum_of_parts(const Tensor& parts, ReduceOp op);

}  // namespace cohort::nccl_backend
