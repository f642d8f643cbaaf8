// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

#include <functional>
#include <string>
#include <vector>

#include "cohort/core/unique_fd.h"

namespace cohort::process {

// What a rank needs that the zygote keeps from before the fork.
struct ZygoteOptions {
  std::vector<std::string> program;  // executed, or, if empty,
  std::function<int()> body;         // called
  sigset_t mask{};                   // the caller's, for the ranks
  struct sigaction on_pipe {};       // SIGPIPE's action of the caller, for the ranks
};

// The life of the process that forks the ranks, reaps those that ended, and reports
// both to the agent through `socket`; never returns. The agent has a ZygoteHandle.
[[noreturn]] void run_zygote(UniqueFd socket, pid_t agent,
                             const ZygoteOptions& options);

}  // namespace cohort::process
