// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cohort/core/tensor.h"

namespace cohort {

// Samples stacked along dim 0.
struct Batch {
  Tensor input;
  Tensor target;
  std::vector<int64_t> ids;  // of the samples, where someone keys by them
};

// A fixed set of samples, known by their ids [0, size()). Sample i is the same on
// every rank and in every run.
//
// Thread safety: gather() may be called from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  virtual int64_t size() const = 0;

  // New tensors with the samples `ids`, in that order. No ids give tensors with
  // zero rows. An id outside the set is a bug of the caller.
  virtual Batch gather(std::span<const int64_t> ids) const = 0;

  // One line for people: "fashion-mnist train: 60000 images 1x28x28, 10 classes".
  virtual std::string describe() const = 0;

 protected:
  Dataset() = default;
};

}  // namespace cohort
