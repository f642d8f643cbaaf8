// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/element_sum.h"

#include "cohort/core/error.h"

namespace cohort {
namespace {

template <typename Bits>
uint64_t sum_as(const ElementRun& run, uint64_t seed) {
  const auto* const data = static_cast<const Bits*>(run.data);
  const uint64_t step = kGolden64 * static_cast<uint64_t>(run.stride);
  uint64_t at = seed + kGolden64 * static_cast<uint64_t>(run.first), sum = 0;
  for (int64_t k = 0; k < run.count; ++k, at += step) sum += element_term(at, data[k]);
  return sum;
}

}  // namespace

uint64_t sum_elements(const ElementRun& run, uint64_t seed) {
  switch (run.element_bytes) {
    case 1:
      return sum_as<uint8_t>(run, seed);
    case 2:
      return sum_as<uint16_t>(run, seed);
    case 4:
      return sum_as<uint32_t>(run, seed);
    default:
      COHORT_CHECK(run.element_bytes == 8, "elements of ", run.element_bytes, " bytes");
      return sum_as<uint64_t>(run, seed);
  }
}

}  // namespace cohort
