// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/tensor_spec.h"

#include <functional>
#include <numeric>
#include <utility>

namespace cohort {
namespace {

struct DtypeName {
  const char* name;
  at::ScalarType dtype;
};
constexpr DtypeName kDtypes[] = {
    {"F64", at::kDouble},    {"F32", at::kFloat}, {"F16", at::kHalf},
    {"BF16", at::kBFloat16}, {"I64", at::kLong},  {"I32", at::kInt},
    {"I16", at::kShort},     {"I8", at::kChar},   {"U8", at::kByte},
    {"BOOL", at::kBool},
};

}  // namespace

const char* safetensors_dtype(at::ScalarType dtype) {
  for (const auto& entry : kDtypes)
    if (entry.dtype == dtype) return entry.name;
  return nullptr;
}

std::optional<at::ScalarType> safetensors_dtype(std::string_view name) {
  for (const auto& entry : kDtypes)
    if (name == entry.name) return entry.dtype;
  return std::nullopt;
}

std::string safetensors_dtypes() {
  std::string list;
  for (const auto& entry : kDtypes) {
    if (!list.empty()) list += ' ';
    list += entry.name;
  }
  return list;
}

int64_t TensorSpec::numel() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

int64_t size_of(at::ScalarType dtype) {
  return static_cast<int64_t>(c10::elementSize(dtype));
}

int64_t TensorSpec::bytes() const { return numel() * size_of(dtype); }

int64_t TensorSpec::box_numel() const {
  return box.is_whole() ? numel() : BoxMap(box, numel()).numel();
}

TensorSpec spec_of(std::string name, const Tensor& whole) {
  return {.name = std::move(name),
          .shape = whole.sizes().vec(),
          .dtype = whole.scalar_type(),
          .begin = 0,
          .end = whole.numel()};
}

}  // namespace cohort
