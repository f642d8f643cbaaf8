// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/agent.h"

#include <poll.h>
#include <sys/wait.h>

#include <algorithm>

#include "cohort/comm/tcp_store.h"
#include "cohort/core/error.h"
#include "cohort/launch/error_file.h"
#include "cohort/launch/generation.h"
#include "cohort/launch/meeting.h"
#include "cohort/launch/preparation.h"
#include "cohort/launch/signals.h"

namespace cohort {
namespace process {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMeetingInterval{150};

class Agent {
 public:
  explicit Agent(const LaunchOptions& options)
      : options_(options),
        zygote_({options.program, options.body, signals_.old_mask(),
                 signals_.old_pipe_action()}),
        out_(STDOUT_FILENO),
        err_(STDERR_FILENO),
        plan_{options, {}, {}, 0, {}} {}

  LaunchResult run() {
    if (join()) {
      prepare(plan_);
      while (run_generation() && agree_to_restart()) continue;
      say_last_word();
    }
    flush();
    return result_;
  }

 private:
  bool join();
  bool run_generation();
  bool agree_to_restart();
  void say_last_word();
  void flush();

  void wait(RankGroup* generation);
  void on_signal(int signal, RankGroup* generation);
  void suspend(RankGroup* generation);
  void watch_meeting(Generation& generation);
  void on_event(const Event& event, Generation& generation);
  void wait_for_other_nodes(Generation& generation);
  void conclude(Generation& generation);
  Failure zygote_failure() const;

  void say(const std::string& line) { err_.write("[launch] " + line + "\n", this); }

  const LaunchOptions& options_;
  SignalScope signals_;
  Zygote zygote_;  // before the first thread, which is the store's
  Sink out_, err_;
  std::unique_ptr<StoreServer> store_;  // of one node; several meet in another
  std::unique_ptr<Meeting> meeting_;
  RankPlan plan_;
  int generation_ = 0;
  std::optional<Event> event_;  // of this generation, from any node
  Clock::time_point next_meeting_{};
  LaunchResult result_;
};

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
  meeting_ = std::make_unique<Meeting>(options_);
  for (;;) {
    if (auto world = meeting_->advance()) {
      plan_.world = *world;
      return true;
    }
    next_meeting_ = Clock::now() + kMeetingInterval;
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

// One life of all ranks. True if they are to have another one.
bool Agent::run_generation() {
  event_.reset();
  Generation generation(plan_, zygote_, out_, err_, generation_);
  generation.start();
  while (!generation.done()) {
    wait(&generation);
    while (const auto report = zygote_.next_report()) generation.handle(*report);
    if (!zygote_.alive()) generation.lost();
    generation.advance();
    for (const std::string& notice : generation.notices()) say(notice);
    if (generation.should_stop()) generation.stop(SIGTERM);
    if (meeting_) watch_meeting(generation);
  }
  if (meeting_ && zygote_.alive()) wait_for_other_nodes(generation);
  conclude(generation);
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
void Agent::conclude(Generation& generation) {
  result_.failures.clear();
  result_.exit_code = 0;
  if (!zygote_.alive()) {
    result_.failures = {zygote_failure()};
  } else if (result_.stop_signal) {
    result_.exit_code = generation.common_code().value_or(128 + result_.stop_signal);
    return;
  } else {
    result_.failures = generation.failures();
    if (event_ && event_->kind == Event::kFault &&
        (result_.failures.empty() ||
         result_.failures[0].rank != event_->failure.rank)) {
      result_.failures.insert(result_.failures.begin(), event_->failure);
    }
  }
  if (result_.failures.empty()) {
    result_.exit_code = generation.stopped_on_request() ? 75 : 0;
    return;
  }
  const Failure& cause = result_.failures[0];
  result_.exit_code = result_.stop_signal ? 128 + result_.stop_signal : cause.exit_code;
  if (cause.rank < 0) {
    say(cause.message);
  } else {
    say(text("rank ", cause.rank, " on ", cause.host, " (pid ", cause.pid,
             ") failed: ", describe_cause(cause)));
  }
  if (options_.json) {
    out_.write(fault_event(cause.rank, describe_cause(cause)) + "\n", this);
  }
}

Failure Agent::zygote_failure() const {
  Failure failure;
  failure.host = host_name();
  failure.pid = zygote_.pid();
  const int status = zygote_.status();
  failure.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  failure.exit_code = failure.signal ? 128 + failure.signal : kLostPeer;
  failure.message =
      text("the zygote on ", failure.host, " (pid ", failure.pid, ") was ",
           failure.signal ? "killed by " + signal_name(failure.signal) : "lost",
           "; all ranks are ended");
  return failure;
}

// Sleeps until something happens; handles signals and output meanwhile.
void Agent::wait(RankGroup* generation) {
  std::vector<pollfd> polls = {{signals_.fd(), POLLIN, 0},
                               {zygote_.alive() ? zygote_.socket() : -1, POLLIN, 0}};
  for (const Sink* sink : {&out_, &err_}) {
    if (!sink->empty()) polls.push_back({sink->fd(), POLLOUT, 0});
  }
  auto until = Clock::now() + std::chrono::seconds(1);
  if (generation) {
    generation->add_polls(polls);
    until = std::min(until, generation->next_deadline());
  }
  if (meeting_) until = std::min(until, next_meeting_);
  const auto left = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
  ::poll(polls.data(), polls.size(), static_cast<int>(std::max<int64_t>(0, left)));
  out_.flush();
  err_.flush();
  while (const auto signal = signals_.next()) on_signal(*signal, generation);
  if (!generation) {
    while (zygote_.next_report()) continue;  // notices its end
  }
}

void Agent::on_signal(int signal, RankGroup* generation) {
  if (signal == SIGCHLD) {
    zygote_.check();
    return;
  }
  if (signal == SIGTSTP) {
    suspend(generation);
    return;
  }
  const bool stops = signal != SIGUSR2 && (signal != SIGUSR1 || options_.usr1_stops);
  if (!stops) {
    if (generation) generation->forward(signal);
    return;
  }
  const bool again = result_.stop_signal != 0;
  if (!again) {
    result_.stop_signal = signal;
    say(text(signal_name(signal), ": stopping ", generation ? generation->running() : 0,
             " ranks"));
  }
  if (!generation) return;
  if (again && signal == SIGINT) {
    generation->kill();
  } else if (generation->stopping()) {
    generation->forward(signal);
  } else {
    generation->stop(signal);
  }
}

// Ctrl-Z: ranks are in groups of their own, so the terminal does not reach them.
void Agent::suspend(RankGroup* generation) {
  if (generation) generation->suspend(true);
  ::kill(::getpid(), SIGSTOP);  // SIGTSTP itself is blocked here
  if (generation) generation->suspend(false);
}

// Tells the other nodes what happened here, and hears what happened there.
void Agent::watch_meeting(Generation& generation) {
  if (Clock::now() < next_meeting_ && !generation.done()) return;
  next_meeting_ = Clock::now() + kMeetingInterval;
  if (event_) return;
  try {
    std::optional<Event> event;
    if (!zygote_.alive()) {
      event = Event{Event::kFault, zygote_failure()};
    } else if (result_.stop_signal) {
      event = Event{Event::kStop, {}};
      event->failure.signal = result_.stop_signal;
    } else if (generation.any_failed() && generation.done()) {
      event = Event{Event::kFault, generation.failures()[0]};
    } else if (generation.any_failed()) {
      event = Event{Event::kFault, generation.first_failure()};
    }
    event_ =
        event ? meeting_->publish(generation_, *event) : meeting_->poll(generation_);
  } catch (const CommError& error) {
    event_ = Event{};
    event_->failure.host = host_name();
    event_->failure.exit_code = kLostPeer;
    event_->failure.message =
        text("the agents' store at ", options_.rdzv, " is lost: ", error.what());
  }
  if (event_) on_event(*event_, generation);
}

void Agent::on_event(const Event& event, Generation& generation) {
  if (event.kind == Event::kStop && !result_.stop_signal) {
    result_.stop_signal = event.failure.signal;
    say(text(signal_name(event.failure.signal), " to another node: stopping ",
             generation.running(), " ranks"));
  }
  if (!generation.stopping()) {
    generation.stop(event.kind == Event::kStop ? event.failure.signal : SIGTERM);
  }
}

// A node whose ranks are done keeps the others company: they may still fail, and its
// store may be theirs.
void Agent::wait_for_other_nodes(Generation& generation) {
  watch_meeting(generation);
  try {
    const std::string done = text("done/", generation_);
    if (!event_) meeting_->arrive(done);
    while (!event_ && !meeting_->all_arrived(done)) {
      wait(&generation);
      watch_meeting(generation);
    }
  } catch (const CommError& error) {
    say(text("the agents' store at ", options_.rdzv, " is lost: ", error.what()));
  }
}

// No rank of a new generation starts while one of the old still runs anywhere, nor
// finds anything of it in its store.
bool Agent::agree_to_restart() {
  ++generation_;
  if (!meeting_) {
    store_ = std::make_unique<StoreServer>();
    plan_.world.master_port = store_->port();
    return true;
  }
  const std::string ready = text("ready/", generation_);
  const auto deadline = Clock::now() + options_.grace + std::chrono::seconds(20);
  try {
    meeting_->arrive(ready);
    while (!meeting_->all_arrived(ready)) {
      next_meeting_ = Clock::now() + kMeetingInterval;
      wait(nullptr);
      if (result_.stop_signal || !zygote_.alive()) return false;
      if (Clock::now() < deadline) continue;
      say("other nodes did not come to the restart");
      return false;
    }
    plan_.world.master_port = meeting_->renew_store(generation_);
    return true;
  } catch (const CommError& error) {
    say(error.what());
    return false;
  }
}

void Agent::say_last_word() {
  if (meeting_) meeting_->leave(options_.grace + std::chrono::seconds(5));
}

// Readers that are slow get what is theirs; after a signal they have a second.
void Agent::flush() {
  auto deadline = Clock::time_point::max();
  while ((!out_.empty() || !err_.empty()) && Clock::now() < deadline) {
    if (result_.stop_signal && deadline == Clock::time_point::max()) {
      deadline = Clock::now() + std::chrono::seconds(1);
    }
    next_meeting_ = Clock::now() + std::chrono::seconds(1);
    wait(nullptr);
  }
}

}  // namespace
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
