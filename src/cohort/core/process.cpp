// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/process.h"

#include <unistd.h>

#include <array>

namespace cohort {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

}  // namespace cohort
