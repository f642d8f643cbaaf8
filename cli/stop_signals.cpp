// SPDX-License-Identifier: Apache-2.0
#include "cli/stop_signals.h"

#include "cohort/launch/signals.h"

namespace cohort::cli {
namespace {

// The system calls what is in this section before the constructors of any library.
[[gnu::used,
  gnu::section(".preinit_array")]] void (*const hold_first)() = process::hold_requests;

}  // namespace

void release_stop_signals() { process::release_requests(); }

}  // namespace cohort::cli
