// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/torch_file.h"

#include "fuzz/memory_file.h"
#include "fuzz/target.h"

COHORT_FUZZ_TARGET(torch_file) {
  const MemoryFile file(bytes);
  for (const char* key : {"", "model"}) {
    allow<CheckpointError>([&] {
      for (const auto& [name, tensor] : read_torch_file(file.path(), key)) {
        demand(tensor.nbytes() <= bytes.size(), "a tensor larger than its file");
        (void)tensor.contiguous();
      }
    });
  }
}
