// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/tensor_spec.h"

#include <functional>
#include <numeric>
#include <utility>

namespace cohort {

int64_t TensorSpec::numel() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

int64_t size_of(at::ScalarType dtype) {
  return static_cast<int64_t>(c10::elementSize(dtype));
}

int64_t TensorSpec::bytes() const { return numel() * size_of(dtype); }

TensorSpec spec_of(std::string name, const Tensor& whole) {
  return {.name = std::move(name),
          .shape = whole.sizes().vec(),
          .dtype = whole.scalar_type(),
          .begin = 0,
          .end = whole.numel()};
}

}  // namespace cohort
