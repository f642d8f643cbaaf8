// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/weights_hash.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <string_view>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/hash.h"
#include "cohort/core/mix.h"
#include "cohort/step/element_sum.h"

namespace cohort {
namespace {

static_assert(std::endian::native == std::endian::little,
              "what is hashed is little-endian, and bytes are read as they lie");

// One dimension of a tensor, as memory has it: how many, and how far apart their
// row-major numbers are.
struct MemoryDim {
  int64_t size = 1;
  int64_t stride = 1;
};

// From the slowest to the fastest in memory. Neighbours that are one in both orders
// are joined, so that of a row-major tensor a single one is left.
std::vector<MemoryDim> memory_dims(const StateTensor& tensor) {
  const auto& shape = tensor.spec.shape;
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  std::vector<MemoryDim> dims{{}};
  for (size_t k = 0; k < shape.size(); ++k) {
    const auto d = tensor.order.empty() ? k : static_cast<size_t>(tensor.order[k]);
    if (shape[d] == 1) continue;
    if (MemoryDim& slower = dims.back();
        slower.size == 1 || slower.stride == strides[d] * shape[d])
      slower = {slower.size * shape[d], strides[d]};
    else
      dims.push_back({shape[d], strides[d]});
  }
  return dims;
}

// Row-major number of the element at `position` in memory.
int64_t row_major_number(const std::vector<MemoryDim>& dims, int64_t position) {
  int64_t number = 0;
  for (auto it = dims.rbegin(); it != dims.rend(); ++it) {
    number += position % it->size * it->stride;
    position /= it->size;
  }
  return number;
}

// Every field has its length before it, so that no two tensors have the same bytes.
uint64_t seed_of(const TensorSpec& tensor) {
  const char* const dtype = safetensors_dtype(tensor.dtype);
  if (!dtype)
    throw CheckpointError(text("[step.weights_hash] tensor '", tensor.name,
                               "': ", c10::toString(tensor.dtype),
                               "; legal: ", safetensors_dtypes()));
  uint64_t seed = 0;
  const auto bytes = [&seed](std::string_view given) {
    for (const char c : given)
      seed = mix64(seed + kGolden64 + static_cast<unsigned char>(c));
  };
  const auto number = [&bytes](uint64_t n) {
    bytes({reinterpret_cast<const char*>(&n), sizeof n});
  };
  for (const std::string_view field : {std::string_view(tensor.name), {dtype}}) {
    number(field.size());
    bytes(field);
  }
  number(tensor.shape.size());
  for (const int64_t n : tensor.shape) number(static_cast<uint64_t>(n));
  return seed;
}

}  // namespace

uint64_t hash_term(const TensorSpec& tensor) { return seed_of(tensor); }

uint64_t hash_elements(const StatePiece& piece) {
  const TensorSpec& spec = piece.tensor.spec;
  const Tensor host = piece.data.detach().cpu();
  COHORT_CHECK(host.numel() == spec.end - spec.begin, spec.name, ": elements ",
               spec.begin, " to ", spec.end, " are ", host.numel());
  const uint64_t seed = seed_of(spec);
  const auto dims = memory_dims(piece.tensor);
  const MemoryDim fastest = dims.back();
  const int64_t bytes = size_of(spec.dtype);
  const char* data = static_cast<const char*>(host.const_data_ptr());
  const BoxMap box(spec.box, spec.numel());
  uint64_t sum = 0;
  for (int64_t done = spec.begin; done < spec.end;) {
    const int64_t at = box.to_whole(done);
    const int64_t count = std::min(
        {fastest.size - at % fastest.size, box.run_from(done), spec.end - done});
    sum += sum_elements({.data = data,
                         .count = count,
                         .element_bytes = bytes,
                         .first = row_major_number(dims, at),
                         .stride = fastest.stride},
                        seed);
    data += count * bytes;
    done += count;
  }
  return sum;
}

uint64_t weights_hash_number(std::span<const NamedTensor> tensors) {
  uint64_t sum = 0;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined())
      throw CheckpointError(text("[step.weights_hash] tensor '", name,
                                 "': an undefined tensor; legal: one with elements"));
    const Tensor plain = tensor.detach();
    const Tensor dense =
        plain.is_non_overlapping_and_dense() ? plain : plain.contiguous();
    const StateTensor whole = whole_tensor(name, dense);
    sum += hash_term(whole.spec);
    sum += hash_elements({whole, dense.as_strided({dense.numel()}, {1})});
  }
  return sum;
}

std::string weights_hash(std::span<const NamedTensor> tensors) {
  return hex16(weights_hash_number(tensors));
}

}  // namespace cohort
