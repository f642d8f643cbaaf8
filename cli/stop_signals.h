// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cohort::cli {

// SIGTERM and SIGUSR1 are held back from before the libraries of the program are
// initialised, which takes some tenths of a second: a request to stop a run that comes
// then waits until its agent, and each of its ranks, can answer it. From here on they
// strike.
void release_stop_signals();

}  // namespace cohort::cli
