// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

#include <optional>

#include "cohort/launch/process_tree.h"

namespace cohort::process {

// SIGTERM and SIGUSR1, by which a run is asked to stop: back until someone can answer
// them, and open again. Either may be called before any constructor has run.
void hold_requests();
void release_requests();

// While it lives, the signals an agent handles arrive at a descriptor, SIGPIPE is
// ignored, and this process is the reaper of its descendants. A SIGHUP that was
// ignored before (nohup) stays ignored.
class SignalScope {
 public:
  SignalScope();
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

  int fd() const { return fd_.get(); }
  std::optional<int> next();

  const sigset_t& old_mask() const { return old_mask_; }
  const struct sigaction& old_pipe_action() const { return old_pipe_; }

 private:
  UniqueFd fd_;
  sigset_t handled_{};
  sigset_t old_mask_{};
  struct sigaction old_pipe_ {};
  int old_reaper_ = 0;
};

}  // namespace cohort::process
