// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "cohort/launch/signals.h"
#include "cohort/program.h"

namespace {

// The system calls what is in this section before the constructors of any library.
// Other programs have signals of their own, so this is not in the library.
[[gnu::used, gnu::section(".preinit_array")]] void (*const hold_first)() =
    cohort::process::hold_requests;

}  // namespace

// LibTorch's own tear-down takes 0.2 s and does nothing for us.
int main(int argc, char** argv) { ::_exit(cohort::run_program(argc, argv)); }
