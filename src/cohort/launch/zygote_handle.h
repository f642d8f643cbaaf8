// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <optional>

#include "cohort/launch/wire.h"
#include "cohort/launch/zygote.h"

namespace cohort::process {

// The zygote as the agent sees it: a single-threaded copy of this process that forks
// the ranks, reaps them and reports.
//
// Lifetimes: the zygote ends when its agent does, and then ends all ranks first; a
// rank ends when the zygote does. Ranks have a process group of their own, which is
// ended with them. Signals that the agent handles do not touch the zygote.
//
// Thread safety: one thread, the one that made it.
class ZygoteHandle {
 public:
  // Forks. Call it before the first thread of this process.
  explicit ZygoteHandle(const ZygoteOptions& options);
  // Ends everything that is left, within seconds.
  ~ZygoteHandle();
  ZygoteHandle(const ZygoteHandle&) = delete;
  ZygoteHandle& operator=(const ZygoteHandle&) = delete;

  pid_t pid() const { return pid_; }
  int socket() const { return socket_.get(); }

  // False when the zygote is dead; the same for signal().
  bool spawn(int index, const SpawnText& spawn, int in, int out, int err,
             int link = -1);
  bool signal(int index, int signal);

  // The next report, if there is one. After alive() has become false there is none.
  std::optional<Report> next_report();
  bool alive() const { return alive_; }

  // To be called on SIGCHLD: wakes a zygote that was stopped, notes one that died.
  void check();
  // How a dead zygote ended, as waitpid() says it.
  int status() const { return status_; }

 private:
  bool send(const Request& request, std::string_view text = {},
            std::span<const int> fds = {});
  void receive();
  void lost();

  UniqueFd socket_;
  pid_t pid_ = -1;
  bool alive_ = true;
  bool reaped_ = false;
  int status_ = 0;
  std::deque<Report> reports_;  // received and not yet asked for
  std::set<pid_t> spare_;       // children of this process that are not ours
};

}  // namespace cohort::process
