// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include "cohort/data/dataset.h"
#include "cohort/nn/models.h"

namespace cohort::test {

// A convolution net with running statistics.
inline Chain make_small_net() {
  return make_resnet({.depths = {1}, .width = 4, .classes = 10}, {.seed = 5});
}

// Two samples for it, of `side` x `side` pixels: others in each slice of each step.
inline Batch small_slice(int64_t step, int slice, int64_t side) {
  Batch batch{at::arange(2 * 3 * side * side, at::kFloat)
                  .mul(0.37)
                  .add(11.0 * slice + 101.0 * static_cast<double>(step))
                  .sin()
                  .reshape({2, 3, side, side}),
              at::arange(2).add(slice).remainder(10)};
  batch.ids = {2 * slice, 2 * slice + 1};
  return batch;
}

}  // namespace cohort::test
