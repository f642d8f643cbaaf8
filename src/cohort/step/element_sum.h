// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cohort {

// Elements that lie side by side and are numbered in even steps: element k has the
// number first + k * stride.
struct ElementRun {
  const void* data = nullptr;
  int64_t count = 0;
  int64_t element_bytes = 0;  // 1, 2, 4 or 8
  int64_t first = 0;
  int64_t stride = 1;
};

// The sum, modulo 2^64, of what each element adds to a weights hash
// (docs/formats/weights_hash.md): mix64(seed + kGolden64 * number + kBits64 * bits).
uint64_t sum_elements(const ElementRun& run, uint64_t seed);

}  // namespace cohort
