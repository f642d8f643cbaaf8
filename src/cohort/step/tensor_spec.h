// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/step/tensor_box.h"
#include "cohort/tensor.h"

namespace cohort {

// What a state tensor is, whichever rank holds it (law 7, docs/design.md). Checkpoints,
// hashes, shards and optimizers all read this one description.
struct TensorSpec {
  std::string name;            // as PyTorch's state_dict has it
  std::vector<int64_t> shape;  // the whole tensor's
  at::ScalarType dtype = at::kFloat;

  // The part that is here: elements [begin, end) of a box of the tensor, in memory
  // order. The whole tensor is its own box, and all of it is [0, numel()).
  int64_t begin = 0;
  int64_t end = 0;
  TensorBox box = {};

  // The size of the whole tensor.
  int64_t numel() const;
  int64_t bytes() const;
  // Elements of the box.
  int64_t box_numel() const;
};

// Bytes of one element.
int64_t size_of(at::ScalarType dtype);

// A dtype as the safetensors format names it, "F32" and so on; null for one it does not
// have. And the other way round.
const char* safetensors_dtype(at::ScalarType dtype);
std::optional<at::ScalarType> safetensors_dtype(std::string_view name);
// "F64 F32 ..." for messages.
std::string safetensors_dtypes();

TensorSpec spec_of(std::string name, const Tensor& whole);

}  // namespace cohort
