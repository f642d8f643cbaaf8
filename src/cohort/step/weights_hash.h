// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cohort/step/state_piece.h"
#include "cohort/step/tensor_spec.h"
#include "cohort/tensor.h"

namespace cohort {

// The hash of weights that users see (docs/formats/weights_hash.md). It is a sum modulo
// 2^64: a term for each tensor and one for each of its elements. So a rank that has a
// piece adds that, in any order, and the sums of all ranks make the hash of the whole.
//
// Failure: CheckpointError for a dtype that safetensors does not have, which names it.

// What a tensor adds, however it is cut: its name, dtype and shape.
uint64_t hash_term(const TensorSpec& tensor);
// What the elements of a piece add. `data` may lie on any device.
uint64_t hash_elements(const StatePiece& piece);

// The hash of whole tensors, of any strides and on any device.
uint64_t weights_hash_number(std::span<const NamedTensor> tensors);
// The same as 16 hexadecimal digits.
std::string weights_hash(std::span<const NamedTensor> tensors);

}  // namespace cohort
