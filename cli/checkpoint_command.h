// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

namespace cohort::cli {

// The flags of `cohort checkpoint ACTION`, as given.
struct CheckpointArgs {
  std::string action;  // list, show, verify, diff, reshape, export or import
  std::string path;
  std::string other;  // the second of diff; where the others write to
  std::string to = "safetensors";
  std::string dtype;  // empty: as it is
  std::string max_shard = "5G";
  std::string key;  // in a .pt file
  int files = 1;
  int64_t step = 0;
  bool all = false;      // export optimizer state too
  bool weights = false;  // diff without it
  bool json = false;
};

// Needs no GPU and starts no rank. Returns the exit code: 1 if diff found a difference,
// 5 if verify found damage. CheckpointError and ConfigError otherwise.
int run_checkpoint(const CheckpointArgs& args, std::ostream& out);

// `path`, or the newest that can be used of a folder; newer ones are named on stderr.
// Where none can be, CheckpointError says what is wrong with the newest.
std::string checkpoint_at(const std::string& path, std::string_view asked_by);

// What --help adds to the list of flags.
inline constexpr const char* kCheckpointHelp =
    R"(PATH is a checkpoint (DIR/step-00000100) or a folder of them: then the newest that can be
used. Exit codes: 0 done, equal, whole; 1 diff found a difference; 2 usage; 5 damage, or a
file that cannot be read or written.

Examples:
  cohort checkpoint list runs/first
  cohort checkpoint show runs/first/step-00000100
  cohort checkpoint verify runs/first
  cohort checkpoint diff runs/first/step-00000100 runs/first/step-00000200 --weights
  cohort checkpoint reshape runs/first runs/four_files --files 4
  cohort checkpoint export runs/first model.pt --to pt
  cohort checkpoint export runs/first hub_folder --to hf --dtype BF16
  cohort checkpoint import model.safetensors runs/second
)";

}  // namespace cohort::cli
