// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "cohort/core/message.h"
#include "cohort/core/record.h"
#include "cohort/launch/process_tree.h"

// What agent and zygote say to one another over a SOCK_SEQPACKET pair: a fixed
// head, an optional text, optional descriptors; one message each.
namespace cohort::process {

struct Request {
  enum Kind : int32_t {
    kSpawn,   // fork rank `index`; text: cores and variables; fds: its 0, 1 and 2,
              // and its link to the agent (COHORT_AGENT_FD) where it has one
    kSignal,  // send `signal` to rank `index`, if it still runs
    kQuit,    // end everything below, then yourself
  };
  Kind kind = kQuit;
  int32_t index = -1;
  int32_t signal = 0;
};

struct Report {
  enum Kind : int32_t { kSpawned, kNotSpawned, kExited, kStopped, kContinued };
  Kind kind = kSpawned;
  int32_t index = -1;
  int32_t pid = 0;
  int32_t status = 0;   // kExited: as of waitpid; kStopped: signal; kNotSpawned: errno
  int64_t time_ns = 0;  // wall clock
};

// The text of a kSpawn request, a record.
struct SpawnText {
  std::vector<int> cores;              // empty: as the agent
  std::vector<std::string> variables;  // NAME=VALUE
};
auto record_fields(Alike<SpawnText> auto& spawn) {
  return std::tie(spawn.cores, spawn.variables);
}

}  // namespace cohort::process
