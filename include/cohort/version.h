// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace [[gnu::visibility("default")]] cohort {

// The release, as "0.1.0".
std::string_view version();

// The linker's fingerprint of the running program in hex; "unknown" where it was
// linked without one.
std::string build_id();

}  // namespace cohort
