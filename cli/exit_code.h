// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <exception>
#include <functional>

namespace cohort::cli {

// The contract's exit codes.
inline constexpr int kExitBug = 1;
inline constexpr int kExitConfig = 2;
inline constexpr int kExitData = 3;
inline constexpr int kExitLostPeer = 4;
inline constexpr int kExitCheckpoint = 5;
inline constexpr int kExitStopped = 75;  // on request, with the state saved

// By the kind of error; what is not ours counts as our bug.
int exit_code_of(const std::exception& error);

// The body of a launched rank: what it throws becomes the line that the launcher
// reports, and an exit code.
std::function<int()> as_rank(std::function<int()> body);

// When this process was started: before LibTorch was loaded, which main() cannot see.
std::chrono::system_clock::time_point process_start();

}  // namespace cohort::cli
