// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cohort {

// Slices [begin, end) of a global batch.
struct SliceRange {
  int begin = 0;
  int end = 0;

  int count() const { return end - begin; }
  bool operator==(const SliceRange&) const = default;
};

// What data-parallel rank `rank` of `ranks` computes: contiguous, near equal, in
// order. ConfigError if there are more ranks than slices.
SliceRange slices_of(int rank, int ranks, int slices);

// ConfigError unless every slice of such a batch has a sample.
void require_slices(int64_t batch, int slices);

}  // namespace cohort
