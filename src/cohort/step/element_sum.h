// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cohort/core/mix.h"

namespace cohort {

// What one element adds to a weights hash (docs/formats/weights_hash.md), with
// `key` = seed + kGolden64 * number. Read by the compilers of host and device.
// kBits64 is odd, so that no two values of an element have one term.
inline constexpr uint64_t kBits64 = 0xd6e8feb86659fd93u;
constexpr uint64_t element_term(uint64_t key, uint64_t bits) {
  return mix64(key + kBits64 * bits);
}

// Elements that lie side by side and are numbered in even steps: element k has the
// number first + k * stride.
struct ElementRun {
  const void* data = nullptr;
  int64_t count = 0;
  int64_t element_bytes = 0;  // 1, 2, 4 or 8
  int64_t first = 0;
  int64_t stride = 1;
};

// The sum of the elements' terms, modulo 2^64.
uint64_t sum_elements(const ElementRun& run, uint64_t seed);

}  // namespace cohort
