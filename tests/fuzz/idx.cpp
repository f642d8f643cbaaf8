// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/idx.h"

#include "fuzz/memory_file.h"
#include "fuzz/target.h"

COHORT_FUZZ_TARGET(idx) {
  const MemoryFile file(bytes);
  for (const int dims : {1, 3}) {
    allow<DataError>([&] {
      const Tensor read = read_idx(file.path(), dims);
      demand(read.dim() == dims, "another number of dimensions");
      demand(read.numel() <= static_cast<int64_t>(bytes.size()) * 1032,
             "more than deflate can make");
    });
  }
}
