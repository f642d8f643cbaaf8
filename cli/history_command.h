// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

namespace cohort::cli {

// The flags of `cohort history verify` and `show`, as given.
struct HistoryArgs {
  std::string path;
  std::string other;  // for verify: the history to compare with; empty: none
  int64_t last = 0;   // for show: the last records, so many; 0: all
  bool json = false;
};

// Both return the exit code; DataError for a file that is no history. verify: 1 for a
// breach, 3 if there was nothing to prove it on; ConfigError for runs that cannot be
// compared.
int verify_history(const HistoryArgs& args, std::ostream& out);
int show_history(const HistoryArgs& args, std::ostream& out);  // 1: damage

// What --help adds to the list of flags.
inline constexpr const char* kHistoryHelp =
    R"(A run with --out DIR notes its steps, worlds and rollbacks in DIR/history.log.
verify proves: steps commit once and in order but for recorded rollbacks; each sample is
used once per epoch, by what the ranks drew; generations count up; steps made again,
and those of F2, have equal hashes. It says on how many facts. Exit codes: 0 it holds; 1 it
does not, with the first breaches; 2 usage, or runs of another seed, samples, batch, slices
or exactness; 3 a file that cannot be read or is no history, or nothing to compare: no step,
or none that both know.

Examples:
  cohort history verify runs/first/history.log
  cohort history verify runs/first/history.log runs/second/history.log
  cohort history show runs/first/history.log --last 20
  cohort history show runs/first/history.log --json
)";

}  // namespace cohort::cli
