// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cohort {

// What a backup adds to RunState::state: private to backup*.cpp.
inline constexpr const char* kRunnerState = "runner";    // StepRunner::small_state()
inline constexpr const char* kBatchState = "batch";      // samples per step
inline constexpr const char* kSlicesState = "slices";    // in a batch
inline constexpr const char* kSamplesState = "samples";  // in the data set
inline constexpr const char* kDataState = "data";        // which one it is

}  // namespace cohort
