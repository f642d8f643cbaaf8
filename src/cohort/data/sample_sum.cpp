// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/sample_sum.h"

#include "cohort/core/mix.h"

namespace cohort {

uint64_t sample_key(uint64_t seed, int64_t epoch) {
  return mix64(mix64(seed + kGolden64) + static_cast<uint64_t>(epoch));
}

// Mixed twice: ids that differ in one bit must not have terms that differ alike.
SampleSum sum_samples(uint64_t key, std::span<const int64_t> ids) {
  SampleSum all{.count = static_cast<int64_t>(ids.size())};
  for (const int64_t id : ids)
    all.sum += mix64(mix64(key + static_cast<uint64_t>(id)) + kGolden64);
  return all;
}

}  // namespace cohort
