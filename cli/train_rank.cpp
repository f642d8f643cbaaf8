// SPDX-License-Identifier: Apache-2.0
#include "cli/train_rank.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>

#include "cli/json_reporter.h"
#include "cli/stop_signals.h"
#include "cli/text_reporter.h"
#include "cohort/train/rank_run.h"

namespace cohort::cli {
namespace {

// Set by signals; lock-free, so a handler may write it.
std::atomic<int> stop_signal{0};

// Our launcher's zygote, this rank's parent; 0 under any other launcher.
std::atomic<pid_t> only_sender{0};

// The launcher asks all ranks to stop. A signal that someone sends to one rank is a
// fault of that rank: it dies of it, as it would without a handler.
void on_signal(int number, siginfo_t* info, void*) {
  const pid_t sender = only_sender.load();
  if (sender == 0 || info->si_pid == sender) {
    stop_signal.store(number);
    return;
  }
  ::signal(number, SIG_DFL);
  ::raise(number);
}

void stop_on_signals(bool launched_by_us) {
  only_sender.store(launched_by_us ? ::getppid() : 0);
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;  // or a line of output could be lost
  for (int number : {SIGTERM, SIGUSR1, SIGINT, SIGHUP, SIGQUIT})
    sigaction(number, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);  // a closed stdout is not a crash
  release_stop_signals();
}

std::unique_ptr<Reporter> make_reporter(const ResolvedRun& run, Backlog* backlog) {
  const int64_t every = run.config.get_int("log.every_steps");
  if (run.json) return std::make_unique<JsonReporter>(every, run.out, backlog);
  return std::make_unique<TextReporter>(
      TextReporterOptions{.recipe = std::string(run.recipe->name()),
                          .log_every = every,
                          .epochs = run.trainer.epochs,
                          .quiet = run.quiet,
                          .out = run.out},
      backlog);
}

}  // namespace

int run_train_rank(const ResolvedRun& run) {
  const RankServices services{
      .stop = stop_signal,
      .hear_stop = stop_on_signals,
      .die_of_stop = release_stop_signals,
      .make_reporter = [&](Backlog* backlog) { return make_reporter(run, backlog); },
      .warn =
          [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }};
  return run_rank(run, services).exit_code;
}

}  // namespace cohort::cli
