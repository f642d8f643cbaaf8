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
#include "cohort/launch/zygote_handle.h"

namespace cohort::process {

// Everything ranks of one node need to start, the same in each generation.
struct RankPlan {
  const LaunchOptions& options;
  NodeWorld world;
  std::vector<std::vector<int>> cores;  // by local rank; empty: not pinned
  int threads = 0;                      // OMP_NUM_THREADS; 0: left alone
  std::vector<UniqueFd> logs;           // stdout and stderr of each, in turn; or none
};

// A program that was killed from outside has not said why on its last line.
bool explains_itself(int signal);

// The process of one rank, or of a spare, as its agent sees it: from its fork to its
// last output.
class RankProcess {
 public:
  // `index`: its number at the zygote; `local_rank`: on this node, -1 for a spare.
  RankProcess(const RankPlan& plan, ZygoteHandle& zygote, int index, int local_rank);

  // Opens its streams and has it forked. `link`: the rank's end of its tie to the
  // agent.
  void start(AgentStream& out, AgentStream& err, SpawnText spawn, int link = -1);
  // A spare takes a rank's place: its number, its log and its cores.
  void become(int local_rank);
  void pin(const std::vector<int>& cores);
  // A file that nobody can leave behind, under a name that anyone can open.
  std::string error_path() const;

  int index() const { return index_; }
  int local_rank() const { return local_rank_; }
  bool is_spare() const { return local_rank_ < 0; }
  int pid() const { return pid_; }
  std::string name() const;

  // Output: what to wait for, until when, and what to do then.
  void add_polls(std::vector<pollfd>& polls) const;
  Clock::time_point next_deadline() const;
  void pump(Clock::time_point now);

  void started(int pid);
  // `sent`: the signals that ranks have got from here, a bit each.
  void end(int status, int64_t time_ns, uint64_t sent);
  bool ended() const { return ended_; }
  // Ended, and nothing is left of its output.
  bool done() const;

  void signal(int signal) { zygote_.signal(index_, signal); }
  // Kills it, for a reason that is then its failure's.
  void give_up(const std::string& why);
  bool given_up() const { return !given_up_.empty(); }
  void ask_to_end() { asked_to_end_ = asked_to_end_ || !ended_; }

  void rest(bool resting);
  std::optional<Clock::time_point> resting_since() const { return resting_since_; }

  // These are for a rank that has ended.
  int status() const { return status_; }
  int code() const;
  int64_t ended_ns() const { return ended_ns_; }
  bool is_fine() const;  // 0, or a body's "stopped on request"
  bool asked_to_end() const { return asked_to_end_; }
  // It died of a signal that nobody here had sent.
  bool killed_by_others() const { return killed_by_others_; }
  bool killed_from_outside() const;
  // It says that a peer was lost: that peer is the cause.
  bool is_echo() const;
  // What it said itself; without a message when it said nothing.
  ErrorReport report() const;
  Failure failure() const;

 private:
  void show(RankStream& stream, Forward plain, int log) const;
  int log_fd(int stream) const;

  const RankPlan& plan_;
  ZygoteHandle& zygote_;
  int index_;
  int local_rank_;
  int pid_ = 0;
  bool ended_ = false;
  int status_ = 0;
  int64_t ended_ns_ = 0;
  bool asked_to_end_ = false;
  bool killed_by_others_ = false;
  std::optional<Clock::time_point> resting_since_;
  std::string given_up_;  // why the agent ended it
  UniqueFd error_file_;
  std::unique_ptr<RankStream> out_, err_;
  Clock::time_point drain_until_;
  std::vector<int> cores_;  // to be pinned to as soon as its pid is known
};

}  // namespace cohort::process
