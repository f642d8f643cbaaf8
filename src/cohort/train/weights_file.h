// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cohort/communicator.h"
#include "cohort/step/state_piece.h"

namespace cohort {

// Collective: every tensor that any rank has a piece of, whole, by name.
// CheckpointError on every rank if two ranks say two things of one.
std::vector<StateTensor> gather_tensors(Communicator& comm,
                                        std::span<const StatePiece> pieces);

// Collective: writes the weights that ranks own pieces of, every element once, as a
// safetensors file at rank 0. Moments are left out. Owners send rank 0 a stretch at a
// time, so that beside its own state no rank ever holds more than a few times
// `stretch_bytes`, or one row (along dimension 0) of a tensor that is not row-major in
// memory; all of it where dimension 0 is not the slowest. The disk of rank 0 may take
// as long as it likes: the others wait and know that it lives.
//
// Failure: CheckpointError on every rank if the file cannot be written, which then is
// what it was before; CommError if a rank is lost: then it is the old one or the new
// one, whole.
void write_weights(const std::string& path, std::span<const StatePiece> owned,
                   Communicator& comm, int64_t stretch_bytes = 16 << 20);

}  // namespace cohort
