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
  std::string rdzv_token;            // --rdzv-token FILE
  int max_restarts = -1;             // --max-restarts; -1: 0, or 100 in an elastic run
  bool elastic = false;              // --elastic
  int spares = 1;                    // --spares
  double detect_s = 5;               // --detect
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

// What --max-restarts stands for: -1, where it is not given, is 0, or 100 where ranks
// are replaced.
inline int restarts_of(int given, bool elastic) {
  return given >= 0 ? given : elastic ? 100 : 0;
}

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

// What --help adds to the list of flags.
inline constexpr const char* kLaunchHelp =
    R"(Ranks find RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and the rest of
what torchrun exports. Returns the first failed program's own code, or 128 + signal.

Examples:
  cohort launch -n 2 -- ./my_program --epochs 3
  cohort launch -n 2 -- python3 train_ddp.py
  cohort launch --elastic -n 2 -- ./my_program       ranks are replaced (cohort::ElasticRun)
  cohort launch -n 4 --nnodes 2 --rdzv node0:29400 --rdzv-token ~/.rdzv -- ./my_program
On several hosts the agents share a secret, in a file that you alone can read:
  (umask 077; head -c 32 /dev/urandom | base64 > ~/.rdzv)
)";

}  // namespace cohort::cli
