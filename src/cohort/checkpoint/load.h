// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "cohort/checkpoint/checkpoint.h"
#include "cohort/checkpoint/save.h"

namespace cohort {

// Fills the data of pieces, as the ranks that hold them now have cut them, from a
// checkpoint of any layout: the other way of CheckpointWriter::save(). Data may lie on
// any device and have another dtype than the saved one; it is contiguous in the order
// of its tensor. Each rank asks for its own; no rank waits for another.
//
// Failure: CheckpointError. What is missing or of another shape is named before
// anything is changed; damage is found while reading, and data read by then has
// changed.
void load_pieces(Checkpoint& saved, std::span<StatePiece> pieces);

// CheckpointError if the tensor is missing, or has another shape than this one.
void require_fit(const Checkpoint& saved, const TensorSpec& wanted);

}  // namespace cohort
