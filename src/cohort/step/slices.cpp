// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/slices.h"

#include "cohort/core/error.h"

namespace cohort {

SliceRange slices_of(int rank, int ranks, int slices) {
  if (ranks > slices)
    throw ConfigError(text("[step] ", ranks, " data-parallel ranks for ", slices,
                           " slices of a batch; legal: at most ", slices,
                           " ranks, or slices=", ranks, " and more"));
  const auto border = [&](int64_t r) { return static_cast<int>(r * slices / ranks); };
  return {border(rank), border(rank + 1)};
}

void require_slices(int64_t batch, int slices) {
  if (batch < slices)
    throw ConfigError(text("[step] batch=", batch, " cannot be cut into ", slices,
                           " slices; legal: a batch of at least ", slices));
}

}  // namespace cohort
