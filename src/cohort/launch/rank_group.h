// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cohort/launch/rank_process.h"

namespace cohort::process {

// The processes of this node's ranks, as the agent's loop drives them. What the death
// of one means is for those who derive from it.
class RankGroup {
 public:
  virtual ~RankGroup() = default;
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  // What the caller's poll() is to wait for, and until when.
  virtual void add_polls(std::vector<pollfd>& polls) const;
  virtual Clock::time_point next_deadline() const;
  // Reads output, watches deadlines. Lines worth telling the user are in notices().
  virtual void advance();
  void handle(const Report& report);
  // The zygote died, and every rank with it.
  virtual void lost();

  void forward(int signal) { signal_running(signal); }
  // Asks the ranks to end: `signal` now, SIGKILL after the grace.
  virtual void stop(int signal);
  virtual void kill();
  bool stopping() const { return stopping_; }
  // The agent itself is being stopped or has been woken: no rank's fault.
  void suspend(bool suspended);

  // All have ended and their output is drained.
  virtual bool done() const;
  int running() const;  // ranks; spares are none

  std::vector<std::string> notices();

 protected:
  // A rank that is stopped for `rest_limit` is killed.
  RankGroup(const RankPlan& plan, ZygoteHandle& zygote, AgentStream& out,
            AgentStream& err, std::chrono::milliseconds rest_limit);

  // Whether a signal may reach it that ends a process which knows of nothing.
  virtual bool hears(const RankProcess& process) const { return !process.is_spare(); }
  // It has ended, just now.
  virtual void on_end(RankProcess& process) = 0;

  RankProcess& add(int index, int local_rank);
  void start(RankProcess& process, SpawnText spawn, int link = -1);
  void note(const std::string& line) { notices_.push_back(line); }

  using Processes = std::map<int, std::unique_ptr<RankProcess>>;
  Processes processes_;  // by index

 private:
  void signal_running(int signal);
  void end_frozen(RankProcess& process, Clock::time_point now);

  const RankPlan& plan_;
  ZygoteHandle& zygote_;
  AgentStream& out_;
  AgentStream& err_;
  std::chrono::milliseconds rest_limit_;
  bool stopping_ = false;
  bool suspended_ = false;
  uint64_t sent_ = 0;  // signals, a bit each
  Clock::time_point kill_at_ = Clock::time_point::max();
  Clock::time_point abandon_at_ = Clock::time_point::max();
  std::vector<std::string> notices_;
};

}  // namespace cohort::process
