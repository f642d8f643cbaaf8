// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "cohort/data/image_loading.h"

namespace cohort {

struct Cifar10Options {
  // The folder with data_batch_1.bin to data_batch_5.bin and test_batch.bin, plain or
  // .gz: what cifar-10-binary.tar.gz unpacks, or the folder it was unpacked in.
  std::string dir;
  // Off: pixel / 255. On: also minus the mean and over the standard deviation of each
  // channel of the training set.
  bool normalize = false;
  int64_t records_per_file = 10'000;  // smaller in tests alone
};

// 32 x 32 pixels of three channels, 10 classes; for ImageLoading. A record is a byte of
// label and 3,072 of pixels, red, green, blue, row by row.
ImageSource cifar10(const Cifar10Options& options, Split split);

// Only reads and checks the files of a split. Throws DataError that names the file, the
// record and what was expected.
LabelledImages read_cifar10(const Cifar10Options& options, Split split);

}  // namespace cohort
