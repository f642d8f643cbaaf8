// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/state_piece.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace cohort {

std::string_view kind_name(TensorKind kind) {
  switch (kind) {
    case TensorKind::kMoment:
      return "moment";
    case TensorKind::kBuffer:
      return "buffer";
    case TensorKind::kParameter:
      break;
  }
  return "parameter";
}

std::vector<int64_t> memory_order(const Tensor& tensor) {
  std::vector<int64_t> order(tensor.dim());
  for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int64_t>(d);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return tensor.stride(a) > tensor.stride(b);
  });
  if (std::is_sorted(order.begin(), order.end()) || tensor.is_contiguous()) return {};
  return order;
}

Tensor in_shape(const Tensor& flat, std::span<const int64_t> shape,
                std::span<const int64_t> order) {
  if (order.empty()) return flat.view(at::IntArrayRef(shape.data(), shape.size()));
  std::vector<int64_t> sizes, back(order.size());
  for (size_t d = 0; d < order.size(); ++d) {
    sizes.push_back(shape[order[d]]);
    back[order[d]] = static_cast<int64_t>(d);
  }
  return flat.view(sizes).permute(back);
}

StateTensor whole_tensor(std::string name, const Tensor& tensor) {
  return {.spec = spec_of(std::move(name), tensor), .order = memory_order(tensor)};
}

}  // namespace cohort
