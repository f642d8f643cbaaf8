// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sstream>
#include <string>
#include <utility>

#include "cohort/error.h"

namespace cohort {

// Joins its arguments as a stream would: text("rank ", 3, " of ", 4).
template <typename... Parts>
std::string text(Parts&&... parts) {
  std::ostringstream out;
  ((out << std::forward<Parts>(parts)), ...);
  return out.str();
}

// Throws the class of `kind`.
[[noreturn]] void throw_error(ErrorKind kind, const std::string& message);

[[noreturn]] void fail_check(const char* condition, const char* file, int line,
                             const std::string& message);

}  // namespace cohort

// An invariant whose failure would be our bug. Never for user input.
#define COHORT_CHECK(condition, ...)                       \
  do {                                                     \
    if (!(condition)) [[unlikely]]                         \
      ::cohort::fail_check(#condition, __FILE__, __LINE__, \
                           ::cohort::text(__VA_ARGS__));   \
  } while (false)
