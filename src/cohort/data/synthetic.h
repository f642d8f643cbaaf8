// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cohort/data/dataset.h"

namespace cohort {

struct SyntheticOptions {
  int64_t size = 50'000;
  std::vector<int64_t> shape = {3, 32, 32};  // one sample's shape; this is CIFAR's
  int64_t classes = 10;
  uint64_t seed = 0;
};

// Made-up classification data that needs no files: a class is a fixed random pattern,
// a sample is its class's pattern under noise. Sample i depends on seed and i alone, so
// it is the same on every rank, at every world size. Inputs are float32 with mean 0,
// targets int64.
//
// ConfigError for a size, a dimension or a number of classes below 1.
std::unique_ptr<Dataset> make_synthetic(const SyntheticOptions& options);

}  // namespace cohort
