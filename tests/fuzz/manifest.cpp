// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/manifest.h"

#include "cohort/core/hash.h"
#include "fuzz/target.h"

namespace cohort::fuzz {
namespace {

// A manifest ends with the hash of what is before it; a reader would go no further.
std::string sealed(std::string_view body) {
  return text(body, ",\"hash\":\"", hex16(hash64(body)), "\"}\n");
}

void check_bounds(const Manifest& manifest) {
  int64_t chunks = 0, files = 0;
  for (const auto& file : manifest.files) {
    demand(file.name.find('/') == std::string::npos, "a file that lies elsewhere");
    files += std::min(file.bytes, int64_t{1} << 50);
  }
  for (const auto& record : manifest.tensors)
    for (const auto& saved : record.boxes)
      for (const auto& chunk : saved.chunks)
        chunks += (chunk.end - chunk.begin) * size_of(record.tensor.spec.dtype);
  demand(chunks <= files || files >= int64_t{1} << 50, "chunks larger than the files");
}

}  // namespace
}  // namespace cohort::fuzz

COHORT_FUZZ_TARGET(manifest) {
  const std::string whole = sealed(bytes);
  for (const std::string_view input : {bytes, std::string_view(whole)}) {
    allow<CheckpointError>([&] {
      const Manifest manifest = parse_manifest(input, "m");
      check_bounds(manifest);
      const std::string once = format_manifest(manifest, "m");
      demand(format_manifest(parse_manifest(once, "m"), "m") == once,
             "a manifest that does not come back");
    });
  }
  allow<CheckpointError>([&] {
    const std::string once = format_part(parse_part(bytes, "p"), "p");
    demand(format_part(parse_part(once, "p"), "p") == once,
           "a part that does not come back");
  });
}
