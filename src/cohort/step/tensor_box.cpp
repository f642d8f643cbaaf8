// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/tensor_box.h"

#include <algorithm>
#include <limits>

#include "cohort/core/error.h"
#include "cohort/core/format.h"

namespace cohort {

std::optional<int64_t> numel_within(std::span<const int64_t> sizes, int64_t most) {
  int64_t product = 1;
  bool is_empty = false;
  for (const int64_t n : sizes) {
    if (n < 0 || n > most / product) return std::nullopt;
    product *= std::max<int64_t>(n, 1);
    is_empty |= n == 0;
  }
  return is_empty ? 0 : product;
}

std::string box_trouble(const TensorBox& box, int64_t numel) {
  const size_t dims = box.cut.size();
  if (dims > kMostDims)
    return text("a cut of ", dims, " dimensions; legal: at most ", kMostDims);
  if (box.from.size() != dims || box.to.size() != dims)
    return text("a box from ", box.from.size(), " to ", box.to.size(),
                " indices; legal: one for each of the ", dims,
                " dimensions of its cut");
  if (dims > 0 && numel_within(box.cut, std::numeric_limits<int64_t>::max()) != numel)
    return text("a cut of ", format_shape(box.cut), "; legal: a shape of ", numel,
                " elements");
  for (size_t d = 0; d < dims; ++d)
    if (box.from[d] < 0 || box.to[d] < box.from[d] || box.to[d] > box.cut[d])
      return text("the box ", box_text(box), "; legal: within ", format_shape(box.cut));
  return "";
}

std::string box_text(const TensorBox& box) {
  std::string out;
  for (size_t d = 0; d < box.from.size(); ++d)
    out += text(d == 0 ? "[" : ",", box.from[d], ":", box.to[d]);
  return out.empty() ? out : out + "]";
}

BoxMap::BoxMap(const TensorBox& box, int64_t numel) {
  dims_.push_back({.size = 1, .from = 0, .extent = 1, .stride = 1, .inside = 1});
  const auto add = [this](int64_t size, int64_t from, int64_t extent) {
    Dim& slower = dims_.back();
    if (extent == size)
      slower = {slower.size * size, slower.from * size, slower.extent * size, 1, 1};
    else
      dims_.push_back({size, from, extent, 1, 1});
  };
  if (box.is_whole()) add(numel, 0, numel);
  for (size_t d = 0; d < box.cut.size(); ++d)
    add(box.cut[d], box.from[d], box.to[d] - box.from[d]);
  int64_t stride = 1;
  numel_ = 1;
  for (size_t d = dims_.size(); d-- > 0;) {
    dims_[d].stride = stride;
    dims_[d].inside = numel_;
    stride *= dims_[d].size;
    numel_ *= dims_[d].extent;
  }
}

int64_t BoxMap::to_whole(int64_t at) const {
  int64_t element = 0;
  for (const Dim& dim : dims_) {
    element += (dim.from + at / dim.inside) * dim.stride;
    at %= dim.inside;
  }
  return element;
}

int64_t BoxMap::run_from(int64_t at) const {
  return dims_.back().extent - at % dims_.back().extent;
}

int64_t BoxMap::before(int64_t element) const {
  if (numel_ == 0) return 0;
  int64_t count = 0;
  for (const Dim& dim : dims_) {
    const int64_t index = element / dim.stride - dim.from;
    count += std::clamp<int64_t>(index, 0, dim.extent) * dim.inside;
    if (index < 0 || index >= dim.extent) break;
    element %= dim.stride;
  }
  return count;
}

}  // namespace cohort
