// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include "cohort/data/dataset.h"
#include "cohort/data/sample_sum.h"
#include "cohort/nn/models.h"

namespace cohort::test {

// A convolution net with running statistics.
inline Chain make_small_net() {
  return make_resnet({.depths = {1}, .width = 4, .classes = 10}, {.seed = 5});
}

inline std::vector<int64_t> small_ids(int slice) { return {2 * slice, 2 * slice + 1}; }

// Two samples for it, of `side` x `side` pixels: others in each slice of each step.
inline Batch small_slice(int64_t step, int slice, int64_t side) {
  return Batch::of({{"input", at::arange(2 * 3 * side * side, at::kFloat)
                                  .mul(0.37)
                                  .add(11.0 * slice + 101.0 * static_cast<double>(step))
                                  .sin()
                                  .reshape({2, 3, side, side})},
                    {"target", at::arange(2).add(slice).remainder(10)}},
                   small_ids(slice));
}

// The sum of the samples of all slices of such a batch.
inline SampleSum small_samples(uint64_t key, int slices) {
  SampleSum all;
  for (int slice = 0; slice < slices; ++slice)
    all += sum_samples(key, small_ids(slice));
  return all;
}

}  // namespace cohort::test
