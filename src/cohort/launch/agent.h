// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace cohort {

struct LaunchOptions {
  int ranks = 1;  // on this node

  // Exactly one of the two: a program to execute, or a function that each forked
  // rank runs and whose result is its exit code. Either finds its World in the
  // environment (world_from_env).
  std::vector<std::string> program;
  std::function<int()> body;

  int min_nodes = 1;
  int max_nodes = 1;
  std::string rdzv;  // HOST:PORT where the agents meet; empty for one node

  int max_restarts = 0;  // of all ranks together, counted over the whole run
  std::chrono::milliseconds grace{3'000};  // between asking a rank to stop and killing it

  int threads = 0;  // OMP_NUM_THREADS a rank; 0: cores / ranks, at least 1
  bool pin = true;  // ranks to disjoint cores, where there are enough

  std::string log_dir;  // rank_<r>.{stdout,stderr}.log; empty: none
  // Rank 0's streams pass through as they are; those of other ranks get a prefix
  // "[rank 1] ". With `prefix_all` rank 0's too.
  bool prefix_all = false;
  bool json = false;  // on stdout: a "fault" event instead of nothing
};

// The first thing that went wrong; everything later is a consequence.
struct Failure {
  int rank = -1;  // -1: the agent or the zygote itself
  std::string host;
  int exit_code = 0;  // the rank's own, or 128 + signal
  int signal = 0;
  std::string message;  // the rank's own error line, where it left one
};

struct LaunchResult {
  int exit_code = 0;
  int restarts = 0;
  std::vector<Failure> failures;  // first cause first
};

// Runs the ranks of this node to their end: forks a zygote, which forks the ranks,
// hosts the store, passes signals on, tees output, reports the first failure.
//
// Call it from the main thread of a process that has started no thread and run no
// tensor kernel: children forked after either may hang. Nothing is left running
// when it returns, nor when this process dies of any signal.
LaunchResult launch(const LaunchOptions& options);

}  // namespace cohort
