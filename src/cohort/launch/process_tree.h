// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "cohort/core/unique_fd.h"

// Small things about processes that the agent and the zygote share.
namespace cohort::process {

using Clock = std::chrono::steady_clock;

// "SIGSEGV"; "signal 40" for one without a name.
std::string signal_name(int signal);

// `bytes` random bytes of the kernel, as lower-case hex.
std::string random_hex(int bytes);

// Wall clock, nanoseconds since 1970.
int64_t wall_ns();

// Children of this process, of all its threads, zombies included.
std::set<pid_t> children();

// Its threads, while it lives.
std::vector<pid_t> threads_of(pid_t pid);

// Kills and reaps every child but those in `spare`, and, because this process is
// the reaper of its descendants, everything below them. False if some were still
// there when `limit` had passed (a process stuck in the kernel).
bool end_children(const std::set<pid_t>& spare, std::chrono::milliseconds limit);

}  // namespace cohort::process
