// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cohort::process {

// What --rdzv-token and COHORT_RDZV_TOKEN ask for.
inline constexpr const char* kRdzvTokenVariable = "COHORT_RDZV_TOKEN";

// The secret that the agents of a run share: the contents of `file` if one is given,
// else the variable's value, both without white space around them; else empty.
//
// ConfigError, which never quotes the secret, where it is shorter than 16 bytes, or the
// file cannot be read, is no regular file of this user, or is open to others.
std::string read_rdzv_token(const std::string& file);

}  // namespace cohort::process
