// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/launch/agent.h"
#include "cohort/launch/environment.h"
#include "cohort/launch/error_file.h"
#include "cohort/launch/output.h"
#include "cohort/launch/zygote.h"

namespace cohort::process {

// The exit code of a rank of ours that lost a peer (docs/commands.md).
inline constexpr int kLostPeer = 4;

// Everything ranks of one node need to start, the same in each generation.
struct RankPlan {
  const LaunchOptions& options;
  NodeWorld world;
  std::vector<std::vector<int>> cores;  // by local rank; empty: not pinned
  int threads = 0;                      // OMP_NUM_THREADS; 0: left alone
  std::vector<UniqueFd> logs;           // stdout and stderr of each, in turn; or none
};

// The ranks of this node, from their start to their end, once.
class Generation {
 public:
  Generation(const RankPlan& plan, Zygote& zygote, Sink& out, Sink& err, int number);

  void start();

  // What the caller's poll() is to wait for, and until when.
  void add_polls(std::vector<pollfd>& polls) const;
  Clock::time_point next_deadline() const;
  // Reads output, watches deadlines. Lines worth telling the user are in notices().
  void advance();
  void handle(const Report& report);
  // The zygote died, and every rank with it.
  void lost();

  void forward(int signal);
  // Asks the ranks to end: `signal` now, SIGKILL after the grace.
  void stop(int signal);
  void kill();
  bool stopping() const { return stopping_; }
  // The agent itself is being stopped or has been woken: no rank's fault.
  void suspend(bool suspended);

  // All ranks have ended and their output is drained.
  bool done() const;
  bool any_failed() const { return !failed_.empty(); }
  int running() const;

  // After done(): first cause first. Empty if no rank failed by itself.
  std::vector<Failure> failures() const;
  // The first failure seen so far; the cause unless an earlier one turns up.
  Failure first_failure() const;
  // The code all ranks ended with by themselves, if it was one.
  std::optional<int> common_code() const;
  // A body ended with "stopped on request".
  bool stopped_on_request() const;

  std::vector<std::string> notices();

 private:
  struct Rank {
    int pid = 0;
    bool ended = false;
    int status = 0;
    int64_t ended_ns = 0;
    bool asked_to_end = false;
    bool killed_by_others = false;  // of a signal that nobody here had sent
    std::optional<Clock::time_point> stopped;
    std::string given_up;  // why the agent ended it
    UniqueFd error_file;
    std::unique_ptr<RankStream> out, err;
    Clock::time_point drain_until;
  };

  void spawn(int index);
  void end(int index, const Report& report);
  void signal_running(int signal);
  bool is_fine(const Rank& rank) const;
  // It says that a peer was lost: that peer is the cause.
  bool is_echo(const Rank& rank) const;
  ErrorReport report_of(int index) const;
  int first_cause() const;
  int cause_behind(int first) const;
  Failure failure_of(int index) const;
  std::string name(int index) const;

  const RankPlan& plan_;
  Zygote& zygote_;
  Sink& out_;
  Sink& err_;
  int number_;
  std::vector<Rank> ranks_;
  std::vector<int> failed_;  // in the order seen
  bool stopping_ = false;
  bool suspended_ = false;
  uint64_t sent_ = 0;  // signals, a bit each
  Clock::time_point kill_at_ = Clock::time_point::max();
  Clock::time_point abandon_at_ = Clock::time_point::max();
  std::vector<std::string> notices_;
};

}  // namespace cohort::process
