// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace cohort {

// The name of this machine; "localhost" if it cannot be told.
std::string host_name();

// From /proc/PID/stat, see proc(5).
struct ProcessStat {
  char state = 0;  // 'Z': it has ended, and nobody has waited for it
  pid_t parent = 0;
  int64_t start_ticks = 0;  // since boot; sysconf(_SC_CLK_TCK) of them per second
};

// Nothing if there is no such process. 0: this one.
std::optional<ProcessStat> process_stat(pid_t pid);

}  // namespace cohort
