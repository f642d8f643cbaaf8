// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cohort/comm/store.h"
#include "cohort/comm/world.h"
#include "cohort/communicator.h"

namespace cohort {

// Collective: the communicator of ranks on one node, through shared memory. Ranks
// may be processes of one user, or threads with a World each. ConfigError for a
// world on several nodes or with too many ranks; CommError when a rank does not
// come within options.join_timeout or its memory cannot be opened.
std::unique_ptr<Communicator> make_shm(const World& world, Store& store,
                                       const ConnectOptions& options);

}  // namespace cohort
