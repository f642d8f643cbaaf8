// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "cohort/tensor.h"

namespace cohort {

// The contents of a file as a 1-d uint8 tensor, unpacked if it is gzip (by its first
// two bytes, not by its name; several members follow one another). `packed` says
// which it was.
//
// `wanted` gets the first bytes (up to kHeadBytes, unpacked) and says how many the
// whole must have; what is longer, a packed file that would unpack to more than it
// says, is not read to its end: then `size` has what is known of it, and `bytes` is
// only its beginning.
//
// Throws DataError that names the file, the byte offset and what is wrong there: it
// cannot be read, is truncated, has altered bytes or a checksum that does not match, or
// memory cannot hold it.
struct FileBytes {
  Tensor bytes;
  bool packed = false;
  int64_t size = 0;     // all that the file has
  bool longer = false;  // than wanted; of a packed file, `size` is a lower bound then
};
inline constexpr int64_t kHeadBytes = 64;
FileBytes read_bytes(const std::string& path,
                     const std::function<int64_t(std::string_view head)>& wanted);

}  // namespace cohort
