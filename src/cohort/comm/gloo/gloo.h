// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cohort/comm/world.h"

namespace cohort {

// Ranks over any network, on LibTorch's c10d::ProcessGroupGloo.
//
// Gloo has no abort: at the first error, and in abort(), a rank closes all its
// connections, so that every survivor notices at once. Errors name the ranks that
// did not report themselves, as far as the store can tell within half a second.
//
// Collective. `store` must outlive the communicator and what is split from it.
// Ignores SIGPIPE in this process unless it has a handler: gloo writes to sockets
// of peers that are gone.
std::unique_ptr<Communicator> make_gloo(const World& world, Store& store,
                                        const ConnectOptions& options);

}  // namespace cohort
