// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>

#include "cohort/core/error.h"
#include "cohort/launch/cores.h"
#include "cohort/launch/error_file.h"
#include "cohort/launch/generation.h"
#include "cohort/launch/meeting.h"
#include "cohort/launch/signals.h"

namespace cohort {
namespace process {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMeetingInterval{150};
constexpr int kLostPeer = 4;

void check_options(const LaunchOptions& o) {
  const auto refuse = [](auto&&... what) {
    throw ConfigError(text("[launch] ", what...));
  };
  if (o.program.empty() == !o.body) refuse("give a program or a body; legal: just one");
  if (o.ranks < 1) refuse("ranks on this node: ", o.ranks, "; legal: 1 or more");
  if (o.min_nodes < 1 || o.max_nodes < o.min_nodes) {
    refuse("nodes: ", o.min_nodes, ":", o.max_nodes, "; legal: 1 <= MIN <= MAX");
  }
  if (o.max_nodes > 1 && o.rdzv.empty()) {
    refuse(o.max_nodes, " nodes have no place to meet; give --rdzv HOST:PORT");
  }
  if (o.max_restarts < 0) refuse("restarts: ", o.max_restarts, "; legal: 0 or more");
  if (o.grace.count() < 0) refuse("negative grace; legal: 0 or more seconds");
}

// A descriptor below 3 that is closed would be taken by one of ours.
void hold_standard_streams() {
  for (int fd = 0; fd < 3; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) [[maybe_unused]]
      const int held = ::open("/dev/null", O_RDWR);
  }
}

std::vector<UniqueFd> open_logs(const std::string& folder, const NodeWorld& world) {
  std::vector<UniqueFd> logs;
  if (folder.empty()) return logs;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  for (int i = 0; i < world.local_size; ++i) {
    for (const char* stream : {"stdout", "stderr"}) {
      const std::string path =
          text(folder, "/rank_", world.first_rank + i, ".", stream, ".log");
      logs.emplace_back(::open(
          path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
      if (logs.back()) continue;
      throw ConfigError(text("[launch] cannot write log file '", path,
                             "': ", strerror(errno), "; give a writable folder"));
    }
  }
  return logs;
}

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
      prepare();
      while (run_generation() && agree_to_restart()) continue;
      say_last_word();
    }
    flush();
    return result_;
  }

 private:
  bool join();
  void prepare();
  bool run_generation();
  bool agree_to_restart();
  void say_last_word();
  void flush();

  void wait(Generation* generation);
  void on_signal(int signal, Generation* generation);
  void suspend(Generation* generation);
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
  UniqueFd listening_;
  Endpoint endpoint_;
  std::unique_ptr<RunStore> store_;
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
    endpoint_ = resolve_endpoint("127.0.0.1:0");
    int error = 0;
    listening_ = try_listen(endpoint_, error);
    if (!listening_) {
      throw CommError(text("[launch] cannot listen on 127.0.0.1: ", strerror(error)));
    }
    plan_.world = {0,
                   1,
                   0,
                   options_.ranks,
                   options_.ranks,
                   "127.0.0.1",
                   endpoint_.port,
                   random_hex(16),
                   random_hex(8)};
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

void Agent::prepare() {
  plan_.logs = open_logs(options_.log_dir, plan_.world);
  const std::vector<int> cores = allowed_cores();
  const int num_cores = static_cast<int>(cores.size());
  plan_.threads = threads_of_rank(options_.threads, num_cores, options_.ranks);
  // More threads than a share of the cores: pinned, they would only wait.
  const bool fits = plan_.threads <= std::max(1, num_cores / options_.ranks);
  if (options_.pin && options_.ranks > 1 && plan_.threads > 0 && fits) {
    plan_.cores = share_cores(cores, options_.ranks);
  }
}

// One life of all ranks. True if they are to have another one.
bool Agent::run_generation() {
  event_.reset();
  Generation generation(plan_, zygote_, out_, err_, generation_);
  generation.start();
  if (listening_) {  // ranks are on their way while the store starts
    store_ = std::make_unique<RunStore>(std::move(listening_), endpoint_);
  }
  while (!generation.done()) {
    wait(&generation);
    while (const auto report = zygote_.next_report()) generation.handle(*report);
    if (!zygote_.alive()) generation.lost();
    generation.advance();
    for (const std::string& notice : generation.notices()) say(notice);
    if (generation.any_failed() && !generation.stopping()) {
      generation.stop(SIGTERM);
    }
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
  result_.exit_code = cause.exit_code;
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
void Agent::wait(Generation* generation) {
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

void Agent::on_signal(int signal, Generation* generation) {
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
void Agent::suspend(Generation* generation) {
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

// No rank of a new generation starts while one of the old still runs anywhere.
bool Agent::agree_to_restart() {
  ++generation_;
  if (!meeting_) return true;
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
