// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <exception>
#include <functional>

#include "cohort/core/exit_code.h"

namespace cohort::cli {

// By the kind of error; what is not ours counts as our bug.
int exit_code_of(const std::exception& error);

// The body of a launched rank: what it throws becomes the line that the launcher
// reports, and an exit code.
std::function<int()> as_rank(std::function<int()> body);

// Since this process was started: before LibTorch was loaded, which main() cannot see.
std::chrono::duration<double> process_age();

}  // namespace cohort::cli
