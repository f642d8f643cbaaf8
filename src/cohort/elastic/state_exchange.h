// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "cohort/communicator.h"
#include "cohort/engine/replicas.h"
#include "cohort/step/state_piece.h"

namespace cohort {

// Moves the state of a run from the ranks that have it to those that want it, whatever
// the layouts were and are: pieces of named tensors, each element from one rank that
// has it, and from this rank itself where it can. A tensor lies in one memory order
// everywhere.
//
// Collective: all ranks pass what they have of one and the same step (a newcomer
// nothing) and what they want; `have` and `want` may be the same memory. Returns, on
// every rank alike, what nobody has, as one line; then nothing has moved. Empty: `want`
// is filled. Throws CommError when a peer is lost meanwhile; `want` is then undefined.
[[nodiscard]] std::string exchange_state(Communicator& comm,
                                         std::span<const StatePiece> have,
                                         std::span<const StatePiece> want);

// Collective: compares what several ranks have of the same piece of a tensor, before
// one of them is cloned. The same answer on every rank.
[[nodiscard]] ReplicaReport compare_held(Communicator& comm,
                                         std::span<const StatePiece> have);

}  // namespace cohort
