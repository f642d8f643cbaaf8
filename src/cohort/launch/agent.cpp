// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/agent.h"

#include <poll.h>
#include <string.h>
#include <sys/wait.h>

#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/core/exit_code.h"
#include "cohort/core/process.h"
#include "cohort/launch/agent_loop.h"
#include "cohort/launch/error_file.h"
#include "cohort/launch/launch_setup.h"

namespace cohort {
namespace process {

using std::chrono::milliseconds;

Agent::Agent(const LaunchOptions& options)
    : options_(options),
      zygote_({options.program, options.body, signals_.old_mask(),
               signals_.old_pipe_action()}),
      out_(STDOUT_FILENO),
      err_(STDERR_FILENO),
      plan_{options, {}, {}, 0, {}} {}

LaunchResult Agent::run() {
  if (join()) {
    prepare(plan_);
    if (options_.elastic.on) {
      run_elastic();
    } else {
      while (run_fixed() && agree_to_restart()) continue;
      note_strangers();
    }
    say_last_word();
  }
  flush();
  return result_;
}

// Finds the world. False if a signal or the zygote's death came first.
bool Agent::join() {
  if (options_.rdzv.empty()) {
    store_ = std::make_unique<StoreServer>();
    plan_.world.local_size = plan_.world.world_size = options_.ranks;
    plan_.world.master_port = store_->port();
    plan_.world.token = random_hex(16);
    plan_.world.run_id = random_hex(8);
    return true;
  }
  rendezvous_ = std::make_unique<Rendezvous>(options_);
  for (;;) {
    const auto world = rendezvous_->advance();
    for (const std::string& notice : rendezvous_->notices()) say(notice);
    if (world) {
      plan_.world = *world;
      return true;
    }
    next_look_ = Clock::now() + kRendezvousInterval;
    wait(nullptr);
    if (!zygote_.alive()) {
      result_.failures = {zygote_failure()};
      result_.exit_code = result_.failures[0].exit_code;
      say(result_.failures[0].message);
      return false;
    }
    if (result_.stop_signal) {
      result_.exit_code = 128 + result_.stop_signal;
      return false;
    }
  }
}

// Ranks that are replaced one by one, to the end of the run.
void Agent::run_elastic() {
  ElasticRanks ranks(plan_, zygote_, out_, err_, std::move(store_));
  elastic_ = &ranks;
  ranks.start();
  while (!ranks.done()) {
    drive(ranks);
    for (const Failure& failure : ranks.faults()) report(failure);
    for (const std::string& notice : ranks.notices()) say(notice);
  }
  elastic_ = nullptr;
  result_.restarts = ranks.restarts();
  result_.too_few = ranks.has_too_few();
  if (!zygote_.alive()) {
    result_.failures = {zygote_failure()};
    report(result_.failures[0]);
  } else if (ranks.cause() && !result_.stop_signal) {
    result_.failures = {*ranks.cause()};
  }
  if (!result_.failures.empty()) {
    result_.exit_code =
        result_.stop_signal ? 128 + result_.stop_signal : result_.failures[0].exit_code;
  } else if (result_.stop_signal) {
    result_.exit_code = ranks.common_code().value_or(128 + result_.stop_signal);
  } else {
    result_.exit_code = ranks.stopped_on_request() ? kExitStopped : 0;
  }
}

std::string Agent::resize(int ranks) {
  if (elastic_) return elastic_->resize(ranks);
  throw ConfigError(text("[resize] the run of pid ", ::getpid(),
                         " is not elastic; legal: `cohort train` with elastic=on"));
}

// Waits for something to happen, and lets it.
void Agent::drive(RankGroup& ranks) {
  wait(&ranks);
  while (const auto report = zygote_.next_report()) ranks.handle(*report);
  if (!zygote_.alive()) ranks.lost();
  ranks.advance();
}

// One life of all ranks. True if they are to have another one.
bool Agent::run_fixed() {
  event_.reset();
  FixedRanks ranks(plan_, zygote_, out_, err_, generation_);
  ranks.start();
  while (!ranks.done()) {
    drive(ranks);
    for (const std::string& notice : ranks.notices()) say(notice);
    if (ranks.should_stop()) ranks.stop(SIGTERM);
    if (rendezvous_) watch_rendezvous(ranks);
  }
  if (rendezvous_ && zygote_.alive()) wait_for_other_nodes(ranks);
  conclude(ranks);
  const bool again = !result_.failures.empty() && zygote_.alive() &&
                     !result_.stop_signal && result_.restarts < options_.max_restarts &&
                     result_.failures[0].rank >= 0;
  if (!again) return false;
  ++result_.restarts;
  say(text("starting all ranks anew (restart ", result_.restarts, " of ",
           options_.max_restarts, ")"));
  return true;
}

// What the generation meant: result_.failures and result_.exit_code.
void Agent::conclude(FixedRanks& ranks) {
  result_.failures.clear();
  result_.exit_code = 0;
  if (!zygote_.alive()) {
    result_.failures = {zygote_failure()};
  } else if (result_.stop_signal) {
    result_.exit_code = ranks.common_code().value_or(128 + result_.stop_signal);
    return;
  } else {
    result_.failures = ranks.failures();
    if (event_ && event_->kind == AgentEvent::kFault &&
        (result_.failures.empty() ||
         result_.failures[0].rank != event_->failure.rank)) {
      result_.failures.insert(result_.failures.begin(), event_->failure);
    }
  }
  if (result_.failures.empty()) {
    result_.exit_code = ranks.stopped_on_request() ? 75 : 0;
    return;
  }
  const Failure& cause = result_.failures[0];
  result_.exit_code = result_.stop_signal ? 128 + result_.stop_signal : cause.exit_code;
  report(cause);
}

void Agent::report(const Failure& failure) {
  if (failure.rank < 0) {
    say(failure.message);
  } else {
    say(text("rank ", failure.rank, " on ", failure.host, " (pid ", failure.pid,
             ") failed: ", describe_cause(failure)));
  }
  if (options_.json) {
    out_.write(fault_event(failure.rank, describe_cause(failure)) + "\n", this);
  }
}

Failure Agent::zygote_failure() const {
  Failure failure;
  failure.host = host_name();
  failure.pid = zygote_.pid();
  const int status = zygote_.status();
  failure.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  failure.exit_code = failure.signal ? 128 + failure.signal : kExitLostPeer;
  failure.message =
      text("the zygote on ", failure.host, " (pid ", failure.pid, ") was ",
           failure.signal ? "killed by " + signal_name(failure.signal) : "lost",
           "; all ranks are ended");
  return failure;
}

// Sleeps until something happens; handles signals and output meanwhile.
void Agent::wait(RankGroup* ranks) {
  std::vector<pollfd> polls = {{signals_.fd(), POLLIN, 0},
                               {zygote_.alive() ? zygote_.socket() : -1, POLLIN, 0}};
  resize_socket_.add_polls(polls);
  for (const AgentStream* stream : {&out_, &err_}) {
    if (!stream->empty()) polls.push_back({stream->fd(), POLLOUT, 0});
  }
  auto until = Clock::now() + std::chrono::seconds(1);
  if (ranks) {
    ranks->add_polls(polls);
    until = std::min(until, ranks->next_deadline());
  }
  if (rendezvous_) until = std::min(until, next_look_);
  const auto left = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
  ::poll(polls.data(), polls.size(), static_cast<int>(std::max<int64_t>(0, left)));
  out_.flush();
  err_.flush();
  while (const auto signal = signals_.next()) on_signal(*signal, ranks);
  resize_socket_.serve([this](int ranks) { return resize(ranks); });
  if (!ranks) {
    while (zygote_.next_report()) continue;  // notices its end
  }
}

void Agent::on_signal(int signal, RankGroup* ranks) {
  if (signal == SIGCHLD) {
    zygote_.check();
    return;
  }
  if (signal == SIGTSTP) {
    suspend(ranks);
    return;
  }
  const bool stops = signal != SIGUSR2 && (signal != SIGUSR1 || options_.usr1_stops);
  if (!stops) {
    if (ranks) ranks->forward(signal);
    return;
  }
  const bool again = result_.stop_signal != 0;
  if (!again) {
    result_.stop_signal = signal;
    say(text(signal_name(signal), ": stopping ", ranks ? ranks->running() : 0,
             " ranks"));
  }
  if (!ranks) return;
  if (again && signal == SIGINT) {
    ranks->kill();
  } else if (ranks->stopping()) {
    ranks->forward(signal);
  } else {
    ranks->stop(signal);
  }
}

// Ctrl-Z: ranks are in groups of their own, so the terminal does not reach them.
void Agent::suspend(RankGroup* ranks) {
  if (ranks) ranks->suspend(true);
  ::kill(::getpid(), SIGSTOP);  // SIGTSTP itself is blocked here
  if (ranks) ranks->suspend(false);
}

// Ranks that are to work together meet in the store, ours and PyTorch's alike. Any
// program may be launched, so that none did is no fault.
void Agent::note_strangers() {
  const bool ended_well = result_.failures.empty() && !result_.stop_signal;
  if (options_.program.empty() || !store_ || options_.ranks < 2 || !ended_well) return;
  if (store_->num_keys() > 0) return;
  say(text("all ", options_.ranks, " ranks of ", options_.program[0],
           " worked alone: none came to the run's store; to work together call "
           "cohort::Session::from_env(), or init_process_group() of PyTorch"));
}

void Agent::say_last_word() {
  if (rendezvous_) rendezvous_->leave(options_.grace + std::chrono::seconds(5));
}

// Readers that are slow get what is theirs; after a signal they have a second.
void Agent::flush() {
  auto deadline = Clock::time_point::max();
  while ((!out_.empty() || !err_.empty()) && Clock::now() < deadline) {
    if (result_.stop_signal && deadline == Clock::time_point::max()) {
      deadline = Clock::now() + std::chrono::seconds(1);
    }
    next_look_ = Clock::now() + std::chrono::seconds(1);
    wait(nullptr);
  }
  if (out_.error() == 0) return;
  say(text("stdout: ", strerror(out_.error()),
           "; what ranks said from there on is lost"));
  err_.flush();
}

}  // namespace process

std::string describe_cause(const Failure& failure) {
  std::string cause = failure.signal
                          ? "killed by " + process::signal_name(failure.signal)
                          : text("exit code ", failure.exit_code);
  if (failure.rank < 0) return failure.message;
  return failure.message.empty() ? cause : cause + ": " + failure.message;
}

LaunchResult launch(const LaunchOptions& options) {
  process::check_options(options);
  process::hold_standard_streams();
  return process::Agent(options).run();
}

}  // namespace cohort
