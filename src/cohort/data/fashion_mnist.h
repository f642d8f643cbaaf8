// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "cohort/data/image_loading.h"

namespace cohort {

struct FashionMnistOptions {
  // The folder with the four IDX files, plain or .gz. The default is that of Debian's
  // package dataset-fashion-mnist.
  std::string dir = "/usr/share/datasets/fashion-mnist";
  // Off: pixel / 255. On: (pixel / 255 - 0.2860) / 0.3530, mean and standard deviation
  // of the training set.
  bool normalize = false;
};

// 28 x 28 pixels of one channel, 10 classes; for ImageLoading.
ImageSource fashion_mnist(const FashionMnistOptions& options, Split split);

// Reads and shares in one go.
std::unique_ptr<Dataset> open_fashion_mnist(const FashionMnistOptions& options,
                                            Split split, Communicator* node);

// Only reads and checks the files of a split. Throws DataError.
LabelledImages read_fashion_mnist(const std::string& dir, Split split);

}  // namespace cohort
