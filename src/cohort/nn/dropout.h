// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cohort/step/block.h"

namespace cohort {

// Sets each value to zero with probability p and divides the rest by 1 - p; in
// evaluation it does nothing.
//
// Element j of a sample falls if uniform_float(RandomKey::of_sample(seed, step, sample,
// name), j) < p, where j counts in row-major order. So the mask depends neither on the
// slice a sample lies in, nor on the rank, nor on whether the block runs twice, nor on
// the device.
class Dropout {
 public:
  // `name` is the layer's path, unique in the model. ConfigError unless 0 <= p < 1.
  Dropout(std::string name, double p);

  // `input` has a row for each of the context's sample ids. Where it is a part of what
  // a layer computes, `first` is the place of its first element in the whole sample.
  Tensor operator()(const Tensor& input, Context& context, int64_t first = 0) const;

 private:
  uint32_t limit() const;  // what the upper 24 bits of a word are compared with
  float kept() const;      // what a value that stays is multiplied with
  Tensor device_mask(const Tensor& input, Context& context, int64_t first) const;

  std::string name_;
  double p_;
};

}  // namespace cohort
