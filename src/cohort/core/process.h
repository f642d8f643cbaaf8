// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cohort {

// The name of this machine; "localhost" if it cannot be told.
std::string host_name();

}  // namespace cohort
