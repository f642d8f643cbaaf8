// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace [[gnu::visibility("default")]] cohort {

// Both may be called at any time, from any thread, and do not fail.

// The release, as "0.1.0". The text lives as long as the program.
std::string_view version();

// The linker's fingerprint of the running program in hex; "unknown" where it was
// linked without one. Ranks of one run must have the same (Session::from_env).
std::string build_id();

}  // namespace cohort
