// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cohort/comm/communicator.h"
#include "cohort/step/state_piece.h"

namespace cohort {

// Collective: every tensor that any rank has a piece of, whole, by name.
// CheckpointError on every rank if two ranks say two things of one.
std::vector<StateTensor> gather_tensors(Communicator& comm,
                                        std::span<const StatePiece> pieces);

// Collective: writes the weights that ranks own pieces of, every element once, as a
// safetensors file at rank 0. Moments are left out. Owners send rank 0 a stretch at a
// time, so that beside its own state no rank ever holds more than about
// `stretch_bytes`, or one row of a tensor (along dimension 0) that is not row-major in
// memory; and nobody waits for a slow disk longer than for a dead rank.
//
// Failure: CheckpointError on every rank if the file cannot be written, which then is
// what it was before; CommError if a rank is lost, with the same promise.
void write_weights(const std::string& path, std::span<const StatePiece> owned,
                   Communicator& comm, int64_t stretch_bytes = 16 << 20);

}  // namespace cohort
