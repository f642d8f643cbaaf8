// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cohort/comm/world.h"

namespace cohort {

// Ranks of many nodes: shm inside a node, another backend between nodes.
bool hybrid_is_available();
std::unique_ptr<Communicator> make_hybrid(const World& world, Store& store,
                                          const ConnectOptions& options);

}  // namespace cohort
