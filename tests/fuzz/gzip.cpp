// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/gzip.h"

#include "fuzz/memory_file.h"
#include "fuzz/target.h"

COHORT_FUZZ_TARGET(gzip) {
  const int64_t wanted = int64_t{take_choice(bytes)} << 8;
  const MemoryFile file(bytes);
  allow<DataError>([&] {
    const auto read = read_bytes(file.path(), [&](std::string_view head) {
      demand(static_cast<int64_t>(head.size()) <= kHeadBytes, "a long head");
      return wanted;
    });
    demand(read.longer == (read.size > wanted), "longer, or not");
    demand(read.longer || read.bytes.numel() == read.size, "bytes are missing");
    demand(read.bytes.numel() <= std::max(wanted + 1, kHeadBytes), "too many bytes");
  });
}
