// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/signals.h"

#include <sys/prctl.h>
#include <sys/signalfd.h>

namespace cohort::process {
namespace {

void mask_requests(int how) {
  sigset_t requests;
  ::sigemptyset(&requests);
  for (const int signal : {SIGTERM, SIGUSR1}) ::sigaddset(&requests, signal);
  ::sigprocmask(how, &requests, nullptr);
}

}  // namespace

void hold_requests() { mask_requests(SIG_BLOCK); }
void release_requests() { mask_requests(SIG_UNBLOCK); }

SignalScope::SignalScope() {
  ::sigemptyset(&handled_);
  for (int signal :
       {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCHLD}) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    const bool ignored = action.sa_handler == SIG_IGN;
    if (ignored && (signal == SIGHUP || signal == SIGTSTP)) continue;
    ::sigaddset(&handled_, signal);
  }
  ::sigprocmask(SIG_BLOCK, &handled_, &old_mask_);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &old_pipe_);
  ::prctl(PR_GET_CHILD_SUBREAPER, &old_reaper_);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  fd_.reset(::signalfd(-1, &handled_, SFD_CLOEXEC | SFD_NONBLOCK));
}

SignalScope::~SignalScope() {
  // What came meanwhile has been answered: it must not strike now.
  while (next()) continue;
  ::prctl(PR_SET_CHILD_SUBREAPER, old_reaper_);
  ::sigaction(SIGPIPE, &old_pipe_, nullptr);
  ::sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
}

std::optional<int> SignalScope::next() {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace cohort::process
