// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/error.h"

#include <cstring>

namespace cohort {

void fail_check(const char* condition, const char* file, int line,
                const std::string& message) {
  const char* name = std::strrchr(file, '/');
  throw BugError(text("[bug] ", name ? name + 1 : file, ":", line, ": ", condition,
                      message.empty() ? "" : ": ", message));
}

}  // namespace cohort
