// SPDX-License-Identifier: Apache-2.0
#include <fstream>

#include "cohort/core/testing_folder.h"
#include "cohort/data/token_file.h"
#include "fuzz/target.h"

// A file of tokens, with a header or without.
COHORT_FUZZ_TARGET(tokens) {
  static const test::TempFolder folder("/dev/shm");
  const std::string path = folder / "train.bin";
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  allow<DataError>([&] {
    const TokenFile file(path);
    const size_t header = file.has_header() ? 1024 : 0;
    demand(file.tokens().size() * 2 + header == bytes.size(), "tokens are missing");
    file.require_below(1 << 15);
    for (const uint16_t token : file.tokens())
      demand(token < 1 << 15, "a token beyond the vocabulary");
  });
}
