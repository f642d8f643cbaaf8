// SPDX-License-Identifier: Apache-2.0
#include "cli/stop_signals.h"

#include <signal.h>

#include <string_view>

namespace cohort::cli {
namespace {

sigset_t stop_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGUSR1}) ::sigaddset(&set, signal);
  return set;
}

void hold_stop_signals() {
  const sigset_t set = stop_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
}

// The system calls what is in this section before the constructors of any library.
[[gnu::used,
  gnu::section(".preinit_array")]] void (*const hold_first)() = hold_stop_signals;

}  // namespace

void release_stop_signals() {
  const sigset_t set = stop_signals();
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace cohort::cli
