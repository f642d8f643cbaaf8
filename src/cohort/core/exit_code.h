// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cohort {

// Exit codes of the program and of its ranks (docs/commands.md). A launcher draws its
// conclusions from them.
inline constexpr int kExitBug = 1;
inline constexpr int kExitConfig = 2;
inline constexpr int kExitData = 3;  // or records of a run that is done are not written
inline constexpr int kExitLostPeer = 4;
inline constexpr int kExitCheckpoint = 5;
inline constexpr int kExitStopped = 75;  // on request, with the state saved

}  // namespace cohort
