// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cohort/data/dataset.h"

namespace cohort {

// Changes the samples of a batch in place: those fields that are there, since a rank of
// a pipeline has not all of them. What becomes of a sample depends on its id and the
// epoch alone: not on the batch, the slice or the rank it is in.
using Augment = std::function<void(Batch& batch, int64_t epoch)>;

struct CropFlipOptions {
  int64_t padding = 4;
  std::vector<float> fill;  // of the padding, by channel; empty: 0
  uint64_t seed = 0;
};

// For the field "input", float32 images [n, channels, height, width]: `padding` pixels
// on every side, from which a window of the old size is cut at random; every other
// window is mirrored, left to right. He et al. 2016, section 4.2.
Augment crop_and_flip(CropFlipOptions options);

}  // namespace cohort
