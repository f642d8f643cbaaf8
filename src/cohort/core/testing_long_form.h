// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string_view>

namespace cohort::test {

// COHORT_LONG is 1: a test takes all ways where in its short form some take turns.
inline bool is_long() {
  const char* const given = std::getenv("COHORT_LONG");
  return given && given == std::string_view("1");
}

}  // namespace cohort::test
