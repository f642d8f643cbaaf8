// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/flags.h"

namespace cohort::cli {

// What is wrong with a command line, in one line: what was given, what is legal or the
// nearest of it, and where to read on.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace cohort::cli
