// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/state_piece.h"

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

StateTensor whole_tensor(std::string name, const Tensor& tensor) {
  return {.spec = spec_of(std::move(name), tensor), .order = memory_order(tensor)};
}

}  // namespace cohort
