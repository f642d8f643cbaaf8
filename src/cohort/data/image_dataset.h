// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cohort/data/dataset.h"
#include "cohort/tensor.h"

namespace cohort {

// What becomes of a pixel p: (p / 255 - mean) / deviation, in float32, with a mean and
// a deviation for each channel. Without any: p / 255.
struct ImageScale {
  std::vector<float> mean;
  std::vector<float> deviation;
};

// Images that lie in memory as bytes: `images` uint8 [n, channels, height, width],
// contiguous; `labels` uint8 [n], below `classes`. Batches are float32 images and int64
// labels, bit for bit what images.to(float32).div(255).sub(mean).div(deviation) gives.
std::unique_ptr<Dataset> make_image_dataset(std::string name, Tensor images,
                                            Tensor labels, int classes,
                                            ImageScale scale);

}  // namespace cohort
