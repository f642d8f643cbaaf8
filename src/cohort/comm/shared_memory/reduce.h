// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "cohort/communicator.h"

namespace cohort::shared_memory {

// Reduces `numel` elements of the inputs, in their order, into every output.
//
// The order fixes the bits: the same inputs give the same outputs on every rank
// and by every path. float16 and bfloat16 are accumulated in float32 and rounded
// once; kMean divides once, at the end. An output may be one of the inputs, but
// must not overlap one otherwise.
void reduce(at::ScalarType dtype, ReduceOp op, std::span<const std::byte* const> inputs,
            std::span<std::byte* const> outputs, int64_t numel);

}  // namespace cohort::shared_memory
