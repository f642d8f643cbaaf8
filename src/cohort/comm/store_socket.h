// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include "cohort/core/unique_fd.h"

// The sockets of a guarded store (guarded_store.h) that is not on the network: they are
// in the kernel's own name space of this machine, leave no file behind, and the kernel
// says who is at the other end.
namespace cohort {

// Throws ConfigError where another has the name.
UniqueFd listen_on_this_machine(const std::string& name);

// None where nobody listens.
UniqueFd connect_on_this_machine(const std::string& name);

// The other end is a process of this user or of root.
bool is_own_user(int socket);

}  // namespace cohort
