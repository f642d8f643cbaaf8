// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "cohort/comm/tcp_store.h"
#include "cohort/comm/world.h"

namespace cohort {

// What must be equal on all ranks of a run: release and build of the program.
std::string program_version();

// join() for a program that calls itself `version`.
std::unique_ptr<Store> join_as(const World& world, const ConnectOptions& options,
                               const std::string& version);

// Finds them over a store that is connected. Event-driven: each rank
// compares itself with the first that came, the last one to come (or the first to
// find a fault) writes the verdict, and all wait for that one key.
void find_peers(const World& world, Store& store, const ConnectOptions& options,
                const std::string& version);

// Closes a world that not all of its ranks have joined: the ranks that wait for the
// others, and those still to come, get a CommError with `why`. False if all have joined
// it.
bool close_world(const World& world, StoreServer& server, const std::string& why);

}  // namespace cohort
