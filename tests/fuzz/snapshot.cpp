// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/snapshot_pages.h"
#include "fuzz/memory_file.h"
#include "fuzz/target.h"

namespace cohort::fuzz {
namespace {

void read_part(const SnapshotPages& pages) {
  if (!pages.title()) return;
  allow<CheckpointError>([&] { (void)pages.run(); });
  allow<CheckpointError>([&] {
    for (const auto& piece : pages.pieces()) {
      demand(static_cast<int64_t>(piece.data.nbytes()) <= pages.bytes(),
             "a piece larger than its pages");
      // Every byte of it can be read.
      const auto* data = static_cast<const char*>(piece.data.const_data_ptr());
      volatile char sum = 0;
      for (size_t i = 0; i < piece.data.nbytes(); i += 64) sum = sum + data[i];
    }
  });
}

}  // namespace
}  // namespace cohort::fuzz

// The bytes are pages as they are, and then the tables of pages that are whole.
COHORT_FUZZ_TARGET(snapshot) {
  MemoryFile file(bytes);
  if (const auto pages = SnapshotPages::map(file.release())) read_part(*pages);

  const auto pages = SnapshotPages::create(1 << 16);
  const SnapshotPlan plan{
      .tables = std::string(bytes), .offsets = {}, .data_bytes = 8192};
  if (pages->write({.step = 1}, {}, plan, {})) read_part(*pages);
}
