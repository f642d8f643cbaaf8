// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cohort/comm/store.h"
#include "cohort/session.h"

namespace cohort {

// Connects to the world's store (and hosts it where the launcher has none).
// Refuses, with ConfigError on every rank, a world whose ranks disagree about its
// size or run different versions of the program; names the ranks that never came.
std::unique_ptr<Store> join(const World& world, const ConnectOptions& options);

// Collective: builds the communicator of all ranks. `auto` is the same backend on every
// rank: nccl where each has a GPU of its own and NCCL, else what serves the host.
// ConfigError for a backend that is unknown (with the nearest one), not built, or
// cannot serve this world.
std::unique_ptr<Communicator> connect(const World& world, Store& store,
                                      const ConnectOptions& options);

}  // namespace cohort
