// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/zygote.h"

#include <ATen/Parallel.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <exception>
#include <map>

#include "cohort/core/error.h"
#include "cohort/core/process.h"
#include "cohort/launch/cores.h"
#include "cohort/launch/error_file.h"
#include "cohort/launch/rdzv_token.h"
#include "cohort/launch/signals.h"
#include "cohort/launch/wire.h"

namespace cohort::process {
namespace {

constexpr std::chrono::seconds kRankEndLimit{5};

void say(const std::string& line) {
  pollfd ready{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&ready, 1, 0) <= 0) return;
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
}

// A rank reports why it could not become what it should be, and ends.
[[noreturn]] void give_up(const std::string& why, int code) {
  write_error_file(why);
  say(why + "\n");
  ::_exit(code);
}

// The program knows nothing of what we hold back or take for an error.
[[noreturn]] void execute(const std::vector<std::string>& program) {
  release_requests();
  ::signal(SIGXFSZ, SIG_DFL);
  std::vector<char*> args;
  for (const std::string& arg : program) args.push_back(const_cast<char*>(arg.c_str()));
  args.push_back(nullptr);
  ::execvp(args[0], args.data());
  const int error = errno;
  give_up(text("cannot execute '", program[0], "': ", strerror(error)),
          error == ENOENT ? 127 : 126);
}

// A body runs in a LibTorch that was loaded before the fork: one with MKL has counted
// the machine's cores by then, and a variable comes too late.
void set_threads() {
  const char* given = ::getenv("OMP_NUM_THREADS");
  const int threads = given ? ::atoi(given) : 0;
  if (threads > 0) at::set_num_threads(threads);
}

// exit() would run destructors of things that belong to threads which a fork does
// not copy, so a rank leaves by _exit.
[[noreturn]] void call(const std::function<int()>& body) {
  int code = 1;
  try {
    code = body();
  } catch (const std::exception& error) {
    ::fflush(nullptr);
    give_up(error.what(), 1);
  } catch (...) {
    give_up("unknown exception", 1);
  }
  ::fflush(nullptr);
  ::_exit(code);
}

class Zygote {
 public:
  Zygote(UniqueFd socket, const ZygoteOptions& options)
      : socket_(std::move(socket)), options_(options), self_(::getpid()) {
    ::prctl(PR_GET_NAME, name_);
    ::prctl(PR_SET_NAME, "cohort-zygote");
    sigset_t mask;
    ::sigemptyset(&mask);
    ::sigaddset(&mask, SIGCHLD);
    child_events_.reset(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  }

  [[noreturn]] void run(pid_t agent) {
    for (;;) {
      pollfd events[2] = {{socket_.get(), POLLIN, 0}, {child_events_.get(), POLLIN, 0}};
      ::poll(events, 2, 1'000);
      if (events[1].revents) drain_child_events();
      reap();
      Request request;
      std::string text;
      std::vector<UniqueFd> fds;
      int got;
      while ((got = receive_message(socket_.get(), &request, sizeof request, text,
                                    fds)) > 0) {
        if (request.kind == Request::kQuit) end();
        handle(request, text, fds);
      }
      if (got < 0) end(agent);
    }
  }

 private:
  // Quietly when asked to; when the agent is gone, someone has to say so.
  [[noreturn]] void end(pid_t lost_agent = 0) {
    const size_t running = ranks_.size();
    for (const auto& [pid, index] : ranks_) ::kill(-pid, SIGKILL);
    end_children({}, kRankEndLimit);
    if (lost_agent) {
      say(text("[launch] the agent on ", host_name(), " (pid ", lost_agent,
               ") died: its ranks are ended (", running, " were running)\n"));
    }
    ::_exit(0);
  }

  void drain_child_events() {
    signalfd_siginfo info;
    while (::read(child_events_.get(), &info, sizeof info) > 0) continue;
  }

  void report(Report::Kind kind, int index, pid_t pid, int status) {
    const Report report{kind, index, pid, status, wall_ns()};
    send_message(socket_.get(), &report, sizeof report);
  }

  // Looks before it reaps: while a rank is a zombie its number is not given to
  // anyone else, so its process group can be ended safely.
  void reap() {
    for (;;) {
      siginfo_t info{};
      const int what = WEXITED | WSTOPPED | WCONTINUED | WNOHANG;
      if (::waitid(P_ALL, 0, &info, what | WNOWAIT) != 0 || info.si_pid == 0) return;
      const pid_t pid = info.si_pid;
      const auto rank = ranks_.find(pid);
      if (info.si_code == CLD_STOPPED || info.si_code == CLD_CONTINUED) {
        ::waitid(P_PID, pid, &info, (what & ~WEXITED));
        if (rank == ranks_.end()) continue;
        const bool stopped = info.si_code == CLD_STOPPED;
        report(stopped ? Report::kStopped : Report::kContinued, rank->second, pid,
               info.si_status);
        continue;
      }
      if (rank != ranks_.end()) ::kill(-pid, SIGKILL);
      int status = 0;
      ::waitpid(pid, &status, 0);
      if (rank == ranks_.end()) continue;  // a rank's orphan
      report(Report::kExited, rank->second, pid, status);
      ranks_.erase(rank);
    }
  }

  void handle(const Request& request, const std::string& text,
              std::vector<UniqueFd>& fds) {
    if (request.kind == Request::kSpawn) {
      spawn(request.index, text, fds);
      return;
    }
    for (const auto& [pid, index] : ranks_) {
      if (index == request.index) ::kill(pid, request.signal);
    }
  }

  void spawn(int index, const std::string& text, std::vector<UniqueFd>& fds) {
    const auto wanted = try_read_record<SpawnText>(text);
    if (!wanted) return report(Report::kNotSpawned, index, 0, EBADMSG);
    const pid_t pid = ::fork();
    if (pid == 0) become_rank(*wanted, fds);
    if (pid < 0) {
      report(Report::kNotSpawned, index, 0, errno);
      return;
    }
    ::setpgid(pid, pid);  // both sides do: whichever is first
    ranks_[pid] = index;
    report(Report::kSpawned, index, pid, 0);
  }

  [[noreturn]] void become_rank(const SpawnText& spawn, std::vector<UniqueFd>& fds) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != self_) ::_exit(128 + SIGKILL);
    ::setpgid(0, 0);
    ::prctl(PR_SET_NAME, name_);
    for (size_t i = 0; i < fds.size() && i < 3; ++i) {
      ::dup2(fds[i].get(), static_cast<int>(i));
    }
    // The link to the agent stays, also in a program that is executed.
    const int link = fds.size() > 3 ? fds[3].release() : -1;
    fds.clear();
    socket_.reset();
    child_events_.reset();
    for (const char* outer : {"COHORT_AGENT_FD", "COHORT_BEGAN", "COHORT_ELASTIC",
                              "COHORT_SPARE", kRdzvTokenVariable}) {
      ::unsetenv(outer);
    }
    for (const std::string& variable : spawn.variables) {
      const size_t equals = variable.find('=');
      ::setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
    }
    if (link >= 0) {
      ::fcntl(link, F_SETFD, 0);
      ::setenv("COHORT_AGENT_FD", std::to_string(link).c_str(), 1);
      if (!options_.program.empty()) ::setenv("COHORT_ELASTIC", "1", 1);
    }
    pin_process(::getpid(), spawn.cores);
    ::sigaction(SIGPIPE, &options_.on_pipe, nullptr);
    ::sigprocmask(SIG_SETMASK, &options_.mask, nullptr);
    if (!options_.program.empty()) execute(options_.program);
    set_threads();
    call(options_.body);
  }

  UniqueFd socket_;
  UniqueFd child_events_;
  const ZygoteOptions& options_;
  const pid_t self_;
  char name_[16] = {};
  std::map<pid_t, int> ranks_;
};

}  // namespace

void run_zygote(UniqueFd socket, pid_t agent, const ZygoteOptions& options) {
  // Not SIGKILL: someone has to end what the ranks have started. SIGCONT wakes a
  // zygote that was stopped; it then reads the end of the stream.
  ::prctl(PR_SET_PDEATHSIG, SIGCONT);
  if (::getppid() != agent) ::_exit(0);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::setpgid(0, 0);  // out of reach of the terminal's signals

  sigset_t blocked;
  ::sigfillset(&blocked);
  for (int fatal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    ::sigdelset(&blocked, fatal);
  }
  ::sigprocmask(SIG_SETMASK, &blocked, nullptr);
  Zygote(std::move(socket), options).run(agent);
}

}  // namespace cohort::process
