// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cohort/communicator.h"

namespace cohort::device_comm {

bool is_narrow(at::ScalarType dtype);  // float16 or bfloat16

// Writes the reduction of `parts`, one of each rank in their order, to `out`, as a
// Communicator promises it: narrow types are added in float32 and rounded once, a mean
// is divided once, a NaN wins. All are of one dtype and number of elements; `out` may
// be none of them. Work of the device that the tensors are on, unrecorded.
void reduce_parts(const Tensor& out, const std::vector<Tensor>& parts, ReduceOp op);

}  // namespace cohort::device_comm
