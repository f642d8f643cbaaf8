// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "cohort/program.h"

// LibTorch's own tear-down takes 0.2 s and does nothing for us.
int main(int argc, char** argv) { ::_exit(cohort::run_program(argc, argv)); }
