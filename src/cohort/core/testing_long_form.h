// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

namespace cohort::test {

// COHORT_LONG is set: a test takes all ways where in its short form some take turns.
inline bool is_long() { return std::getenv("COHORT_LONG") != nullptr; }

}  // namespace cohort::test
