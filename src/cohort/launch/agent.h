// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "cohort/launch/seating.h"

namespace cohort {

// Ranks that die or freeze are replaced while the others live on. For bodies, and
// programs, on one node that use Membership (elastic/membership.h).
struct ElasticOptions {
  bool on = false;
  int spares = 1;  // processes forked ahead: they run the body, and wait
  // A rank that is stopped, or leaves the others waiting, for so long is killed.
  std::chrono::milliseconds detect{5'000};
  // A lost rank has a successor: a spare, or a new process. Else only spares that are
  // there take places, and without one the run goes on with fewer ranks.
  bool replace = true;
  Team team = {};     // ranks that make no whole one wait, as spares
  int min_ranks = 1;  // a run may shrink to
  int max_ranks =
      0;  // a run may grow to; 0: as many as have a place on the progress page
};

struct LaunchOptions {
  int ranks = 1;  // on this node

  // Exactly one of the two: a program to execute, or a function that each forked
  // rank runs and whose result is its exit code. Either finds its World in the
  // environment (world_from_env).
  std::vector<std::string> program;
  std::function<int()> body;

  int min_nodes = 1;
  int max_nodes = 1;
  // HOST:PORT where the agents meet; empty for one node. The agent on HOST serves
  // the rendezvous; --nnodes and --max-restarts must be the same for all.
  std::string rdzv;
  // A file with the secret that the agents share; empty: COHORT_RDZV_TOKEN has it, or
  // there is none, and HOST must be this machine's loopback. The agent reads it once
  // its zygote is forked: ranks never have it.
  std::string rdzv_token;
  std::chrono::milliseconds join_timeout{300'000};  // for all agents to come

  int max_restarts = 0;  // for all ranks together, counted over the whole run
  std::chrono::milliseconds grace{
      3'000};  // between asking a rank to stop and killing it
  // A rank that is stopped (SIGSTOP) for so long is taken for dead and killed.
  std::chrono::milliseconds stopped_limit{30'000};
  // SIGUSR1 is passed on. With this it also asks for the end, as SIGTERM does.
  bool usr1_stops = false;

  ElasticOptions elastic;

  int threads = 0;  // OMP_NUM_THREADS per rank; 0: cores / ranks, at least 1
  // Ranks to disjoint cores, where there are enough. Good for ranks with one thread;
  // threads beside it (Gloo has two) then wait for their turn, 4 ms at a time.
  bool pin = false;

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
  int pid = 0;
  int exit_code = 0;  // the rank's own, or 128 + signal
  int signal = 0;
  std::string message;  // the rank's own error line, where it left one
};

// "killed by SIGSEGV" or "exit code 3", and the message.
std::string describe_cause(const Failure& failure);

struct LaunchResult {
  // 0; the code that ended the run; the ranks' own common code, or 128 + signal, when
  // a signal to the agent did.
  int exit_code = 0;
  int stop_signal = 0;  // that signal
  int restarts = 0;
  bool too_few = false;  // it ended because the ranks that are left make no team
  std::vector<Failure> failures;  // the last generation's first cause first
};

// Runs the ranks of this node to their end: forks a zygote, which forks the ranks,
// hosts the store, passes signals on, tees output, reports the first failure.
//
// SIGTERM, SIGINT, SIGHUP and SIGQUIT to this process go to the ranks and, `grace`
// later, are followed by SIGKILL; a second SIGINT kills at once. SIGUSR1 and SIGUSR2
// go to the ranks. A body begins with the signals blocked that the caller had blocked;
// a program, with SIGTERM and SIGUSR1 open. A rank that fails ends the others, or
// starts all of them anew while there are restarts left. A rank may end with 0 while
// others run on, and a body with 75: stopped on request.
//
// With `elastic.on` a rank that fails is replaced instead, by a spare if there is one,
// or, without `elastic.replace`, left out, and all ranks are told their new World: at
// most `max_restarts` times, and not when the same rank fails for the third time and
// came no further meanwhile, by itself before the first one was, or because of its
// configuration (exit code 2). Rank 0 speaks for the run: once it has ended well, a
// rank that is killed is not replaced.
//
// Streams: rank 0's pass through, whole lines of stdout, stderr as it comes. A rank
// finds COHORT_STDERR_TTY=1 if the agent's stderr is a terminal.
//
// Failure: ConfigError for options that contradict each other or a log folder that
// cannot be written; CommError when the agents cannot meet. What happens to ranks is
// in the result, and on stderr.
//
// Call it from the main thread of a process that has started no thread and run no
// tensor kernel: children forked after either may hang. Nothing is left running
// when it returns, nor when this process dies of any signal.
LaunchResult launch(const LaunchOptions& options);

}  // namespace cohort
