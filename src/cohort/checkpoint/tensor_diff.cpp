// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <map>

#include "cohort/checkpoint/safetensors_header.h"
#include "cohort/checkpoint/tensor_source.h"
#include "cohort/core/error.h"
#include "cohort/core/format.h"

namespace cohort {
namespace {

// Compared at a time, as doubles: bounds the memory a large tensor takes.
constexpr int64_t kDiffStretch = 1 << 20;

std::string form_text(const TensorSpec& spec) {
  return text(safetensors_dtype(spec.dtype), " ", format_shape(spec.shape));
}

void compare(const Tensor& a, const Tensor& b, TensorDifference& out) {
  const auto x = a.to(at::kDouble), y = b.to(at::kDouble);
  const auto differ =
      x.ne(y).logical_and(x.isnan().logical_and(y.isnan()).logical_not());
  const int64_t count = differ.sum().item<int64_t>();
  if (count == 0) return;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto p = x.masked_select(differ), q = y.masked_select(differ);
  const auto gap = p.sub(q).abs().nan_to_num(kInfinity, kInfinity, kInfinity);
  const auto larger = p.abs().maximum(q.abs());
  const auto relative = gap.div(larger).nan_to_num(kInfinity, kInfinity, kInfinity);
  out.different += count;
  out.max_absolute = std::max(out.max_absolute, gap.max().item<double>());
  out.max_relative = std::max(out.max_relative, relative.max().item<double>());
}

// Integers beyond 2^53 are not doubles; bytes tell all of equal dtypes.
bool is_wide_integer(const TensorSpec& a, const TensorSpec& b) {
  return a.dtype == at::kLong && b.dtype == at::kLong;
}

TensorDifference difference(const Tensor& a, const Tensor& b, const TensorSpec& spec,
                            bool wide) {
  TensorDifference out{.name = spec.name, .form = {}, .numel = spec.numel()};
  const auto x = a.view({-1}), y = b.view({-1});
  for (int64_t begin = 0; begin < x.numel(); begin += kDiffStretch) {
    const int64_t count = std::min(kDiffStretch, x.numel() - begin);
    const auto p = x.narrow(0, begin, count), q = y.narrow(0, begin, count);
    const int64_t before = out.different;
    compare(p, q, out);
    if (wide) out.different = before + p.ne(q).sum().item<int64_t>();
  }
  return out;
}

}  // namespace

std::vector<TensorDifference> diff_tensors(const TensorSource& a,
                                           const TensorSource& b) {
  std::map<std::string, std::pair<const TensorSpec*, const TensorSpec*>> names;
  for (const auto& tensor : a.tensors) names[tensor.spec.name].first = &tensor.spec;
  for (const auto& tensor : b.tensors) names[tensor.spec.name].second = &tensor.spec;
  std::vector<TensorDifference> out;
  for (const auto& [name, specs] : names) {
    const auto [x, y] = specs;
    if (!x || !y) {
      const auto& there = x ? *x : *y;
      out.push_back({.name = name,
                     .form = text("only in ", x ? "A" : "B", ": ", form_text(there)),
                     .numel = there.numel()});
    } else if (x->shape != y->shape) {
      out.push_back({.name = name,
                     .form = text(form_text(*x), " and ", form_text(*y)),
                     .numel = x->numel()});
    } else {
      auto found = difference(a.read(name), b.read(name), *x, is_wide_integer(*x, *y));
      if (found.different == 0 && x->dtype == y->dtype) continue;
      if (x->dtype != y->dtype)
        found.form = text(form_text(*x), " and ", form_text(*y));
      out.push_back(std::move(found));
    }
  }
  return out;
}

}  // namespace cohort
