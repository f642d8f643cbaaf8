// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

namespace cohort::cli {

// The flags of `cohort checkpoint ACTION`, as given.
struct CheckpointArgs {
  std::string action;  // list, show, verify, diff, reshape, export or import
  std::string path;
  std::string other;  // the second of diff; where the others write to
  std::string to = "safetensors";
  std::string dtype;  // empty: as it is
  std::string max_shard = "5G";
  std::string key;  // of a .pt file
  int files = 1;
  int64_t step = 0;
  bool all = false;      // export optimizer state too
  bool weights = false;  // diff without it
  bool json = false;
};

// Needs no GPU and starts no rank. Returns the exit code: 1 if diff found a difference,
// 5 if verify found damage. CheckpointError and ConfigError otherwise.
int run_checkpoint(const CheckpointArgs& args, std::ostream& out);

}  // namespace cohort::cli
