// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cohort/tensor.h"

namespace cohort {

// Zeros in the host's memory that kernels of a GPU read and write in place: a flat
// tensor of that device, so that work on it is ordered by its streams. It takes whole
// pages and no more, which stay in memory until the last tensor of it goes; what the
// device was given to do with it must be done then.
//
// ConfigError where the host cannot give so much, or there is no CUDA.
Tensor pinned_zeros(int64_t numel, at::ScalarType dtype, at::Device device);

}  // namespace cohort
