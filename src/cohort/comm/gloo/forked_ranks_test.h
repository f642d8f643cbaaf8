// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/wait.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "cohort/comm/world.h"

namespace cohort::test {

// How one rank ended.
struct ForkedRank {
  int rank = 0;
  int status = 0;    // as waitpid() gave it
  std::string said;  // all of its stdout: the body's result, or the error

  bool exited_well() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
  int signal() const { return WIFSIGNALED(status) ? WTERMSIG(status) : 0; }
};

std::ostream& operator<<(std::ostream& out, const ForkedRank& rank);

// Runs `body` in `size` forked processes that are connected over gloo, with a store
// in this one, which must not have run a tensor kernel. A rank exits with 0 if no
// gtest expectation failed in it. When all ranks have ended but those that are
// stopped, and at the latest after 20 s, what is left is killed.
std::vector<ForkedRank> run_forked(
    int size, const ConnectOptions& options,
    const std::function<std::string(Communicator&)>& body,
    const std::function<void(int)>& before_connect = {});

}  // namespace cohort::test
