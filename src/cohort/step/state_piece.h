// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/step/tensor_spec.h"
#include "cohort/tensor.h"

namespace cohort {

enum class TensorKind { kParameter, kMoment, kBuffer };

// "parameter", "moment" (of an optimizer) or "buffer".
std::string_view kind_name(TensorKind kind);

// A tensor of the state, whichever rank holds it.
struct StateTensor {
  TensorSpec spec;
  TensorKind kind = TensorKind::kParameter;
  // Dimensions from the slowest to the fastest, in the order of which the elements are
  // counted; empty: row-major.
  std::vector<int64_t> order;
};

// Elements [spec.begin, spec.end) of spec.box, as one rank has them. `data` has these
// elements, on any device, contiguous in the order of tensor.order.
struct StatePiece {
  StateTensor tensor;
  Tensor data;
};

// The order in which a tensor's elements lie in memory; empty for row-major.
std::vector<int64_t> memory_order(const Tensor& tensor);

// Flat elements that are counted in `order` (StateTensor), seen as a tensor of `shape`.
Tensor in_shape(const Tensor& flat, std::span<const int64_t> shape,
                std::span<const int64_t> order);

// A dense tensor as it lies in memory, all of it.
StateTensor whole_tensor(std::string name, const Tensor& tensor);

}  // namespace cohort
