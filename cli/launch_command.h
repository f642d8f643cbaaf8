// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace cohort::cli {

// The flags of `cohort launch`, as given.
struct LaunchArgs {
  std::string ranks = "1";           // -n: a number, or auto (GPUs, else cores)
  std::string nodes = "1";           // --nnodes: N or MIN:MAX
  std::string rdzv;                  // --rdzv HOST:PORT
  int max_restarts = 0;              // --max-restarts
  double grace_s = 3;                // --grace
  double join_timeout_s = 300;       // --join-timeout
  double stopped_limit_s = 30;       // --stopped-limit
  int threads = 0;                   // --threads
  bool pin = false;                  // --pin
  std::string log_dir;               // --log-dir
  bool prefix_all = false;           // --prefix-all
  bool json = false;                 // --json
  std::vector<std::string> program;  // behind --
};

// Ranks on this node: a positive number, or "auto". ConfigError otherwise.
int parse_ranks(const std::string& ranks);

struct NodeRange {
  int min = 1;
  int max = 1;
};
// "4" or "2:4". ConfigError otherwise.
NodeRange parse_nodes(const std::string& nodes);

// Runs the program; returns the exit code: the first failed rank's own, or 128 +
// signal. Throws ConfigError and CommError as launch() does.
int run_launch(const LaunchArgs& args);

}  // namespace cohort::cli
