// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cohort/core/error.h"

namespace cohort::test {

// For tests: what the error of that kind says that `call` ends with.
template <typename Kind = Error, typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Kind& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace cohort::test
