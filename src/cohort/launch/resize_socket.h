// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "cohort/core/unique_fd.h"

// What others may ask of a running agent, over a socket named by its pid: one that
// leaves no file behind, and answers its own user and root alone.
namespace cohort::process {

class ResizeServer {
 public:
  // Named by the pid of this process. Where the name is taken (by a pid of another
  // container) there is no socket: nothing can be asked then.
  ResizeServer();

  void add_polls(std::vector<pollfd>& polls) const;
  // Answers whoever has asked. `resize` gets a number of ranks and returns a line; what
  // it throws (ConfigError) is the refusal. Never waits.
  void serve(const std::function<std::string(int ranks)>& resize);

 private:
  void accept();

  UniqueFd socket_;
  std::vector<UniqueFd> guests_;  // have not asked yet
};

// Asks the agent `pid` for another number of ranks; returns its answer. ConfigError,
// in one line, when there is no such agent or it refuses; CommError when it does not
// answer.
std::string ask_resize(pid_t pid, int ranks);

}  // namespace cohort::process
