// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cohort {

// In the place of a target: nothing is to be said there. PyTorch's ignore_index.
inline constexpr int64_t kIgnoredTarget = -100;

}  // namespace cohort
