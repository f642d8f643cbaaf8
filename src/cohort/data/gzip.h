// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cohort/core/tensor.h"

namespace cohort {

// The contents of a file as a 1-d uint8 tensor, unpacked if it is gzip (by its first
// two bytes, not by its name; several members follow one another). `packed` says
// which it was.
//
// Throws DataError that names the file, the byte offset and what is wrong there: it
// cannot be read, is truncated, has altered bytes or a checksum that does not match.
struct FileBytes {
  Tensor bytes;
  bool packed = false;
};
FileBytes read_bytes(const std::string& path);

}  // namespace cohort
