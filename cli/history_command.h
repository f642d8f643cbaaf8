// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

namespace cohort::cli {

// The flags of `cohort history verify` and `show`, as given.
struct HistoryArgs {
  std::string path;
  std::string other;  // of verify; empty: none
  int64_t last = 0;   // of show: records; 0: all
  bool json = false;
};

// Both return the exit code; DataError for a file that is no history.
int verify_history(const HistoryArgs& args, std::ostream& out);  // 1: a breach
int show_history(const HistoryArgs& args, std::ostream& out);    // 1: damage

// What --help adds to the list of flags.
inline constexpr const char* kHistoryHelp =
    R"(A run with --out DIR notes its steps, worlds and rollbacks in DIR/history.log.
verify proves: steps commit once and in order but for recorded rollbacks; each sample is
used exactly once an epoch; generations count up; steps made again, and those of F2, have
equal hashes. Exit codes: 0 it holds; 1 it does not, with the first breaches; 2 usage; 3 a
file that cannot be read or is no history.

Examples:
  cohort history verify runs/first/history.log
  cohort history verify runs/first/history.log runs/second/history.log
  cohort history show runs/first/history.log --last 20
  cohort history show runs/first/history.log --json
)";

}  // namespace cohort::cli
