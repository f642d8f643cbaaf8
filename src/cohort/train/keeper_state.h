// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cohort {

// What a keeper adds to RunState::state: private to keeper*.cpp.
inline constexpr const char* kRunnerState = "runner";    // StepRunner::small_state()
inline constexpr const char* kBatchState = "batch";      // samples a step
inline constexpr const char* kSlicesState = "slices";    // of a batch
inline constexpr const char* kSamplesState = "samples";  // of the data set
inline constexpr const char* kDataState = "data";        // which one it is

}  // namespace cohort
