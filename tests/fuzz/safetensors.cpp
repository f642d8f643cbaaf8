// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/safetensors_reader.h"
#include "fuzz/memory_file.h"
#include "fuzz/target.h"

namespace cohort::fuzz {
namespace {

bool same_header(const SafetensorsHeader& a, const SafetensorsHeader& b) {
  const auto same_entry = [](const TensorEntry& x, const TensorEntry& y) {
    return x.name == y.name && x.dtype == y.dtype && x.shape == y.shape &&
           x.begin == y.begin && x.end == y.end;
  };
  return a.metadata == b.metadata &&
         std::equal(a.entries.begin(), a.entries.end(), b.entries.begin(),
                    b.entries.end(), same_entry);
}

}  // namespace
}  // namespace cohort::fuzz

COHORT_FUZZ_TARGET(safetensors) {
  const MemoryFile file(bytes);
  allow<CheckpointError>([&] {
    const SafetensorsReader reader(file.path());
    const auto& header = reader.header();
    const auto again =
        parse_header(format_header(header, "f"), reader.data_bytes(), "f");
    demand(same_header(header, again), "a header that does not come back");
    for (const auto& entry : header.entries) {
      demand(reader.find(entry.name) == &entry, "a tensor that is not found");
      const Tensor tensor = reader.read(entry);
      demand(static_cast<int64_t>(tensor.nbytes()) == entry.end - entry.begin,
             "a tensor of another size");
    }
  });
}
