// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cohort::cli {

// Our own program holds SIGTERM and SIGUSR1 back from before its libraries are
// initialised (main.cpp), which takes some tenths of a second: a request to stop a run
// that comes then waits until its agent, and each of its ranks, can answer it. From
// here on they strike.
void release_stop_signals();

}  // namespace cohort::cli
