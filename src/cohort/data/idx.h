// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cohort/tensor.h"

namespace cohort {

// Reads an IDX file of unsigned bytes with `dims` dimensions (LeCun's format of MNIST:
// 0, 0, type, number of dimensions, sizes as big-endian 32-bit numbers, then the
// elements), plain or gzip.
//
// Throws DataError that names the file, the byte offset, what was expected and what
// was found: missing, truncated, too long, another magic number, altered bytes.
Tensor read_idx(const std::string& path, int dims);

}  // namespace cohort
