// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>

namespace cohort::cli {

// The arguments of `cohort resize`.
struct ResizeArgs {
  int pid = 0;  // the agent's
  int ranks = 0;
};

// Prints the agent's answer and returns 0. ConfigError, in one line, when there is no
// such run, it is not elastic, or the number is not legal for it.
int run_resize(const ResizeArgs& args, std::ostream& out);

inline constexpr const char* kResizeHelp =
    R"(Weights, batches and the order of samples stay as they are.

Examples:
  cohort resize 4711 4
)";

}  // namespace cohort::cli
