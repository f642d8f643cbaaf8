// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/generation.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>

#include "cohort/core/error.h"

namespace cohort::process {
namespace {

constexpr int kStoppedOnRequest = 75;
// For output of a dead rank that a process out of our reach holds open.
constexpr std::chrono::milliseconds kDrainLimit{500};
// For SIGKILL to be carried out; a process stuck in the kernel takes longer.
constexpr std::chrono::seconds kKillLimit{10};
constexpr size_t kLongestMessage = 500;
// How much later than its peers' consequences a rank's death may be seen, in ns.
constexpr int64_t kDeathLimit = 1'000'000'000;

int code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// A program that was killed from outside has not said why on its last line.
bool explains_itself(int signal) {
  for (int own : {0, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    if (signal == own) return true;
  }
  return false;
}

struct Pipe {
  UniqueFd read, write;
};

Pipe make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) {
    throw CommError(text("[launch] pipe: ", strerror(errno), "; raise `ulimit -n`"));
  }
  Pipe pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
  ::fcntl(fds[0], F_SETFL, O_NONBLOCK);
  return pipe;
}

// Only rank 0 reads our input, and not from a terminal: in a process group of its
// own it would be stopped.
UniqueFd input_of(int rank) {
  if (rank == 0 && !::isatty(STDIN_FILENO)) {
    return UniqueFd(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
  }
  return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

}  // namespace

Generation::Generation(const RankPlan& plan, Zygote& zygote, Sink& out, Sink& err,
                       int number)
    : plan_(plan), zygote_(zygote), out_(out), err_(err), number_(number) {}

void Generation::start() {
  ranks_.resize(plan_.options.ranks);
  for (int i = 0; i < plan_.options.ranks; ++i) spawn(i);
}

void Generation::spawn(int index) {
  Rank& rank = ranks_[index];
  const int global = plan_.world.first_rank + index;
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  const UniqueFd in = input_of(global);

  const bool plain = global == 0 && !plan_.options.prefix_all;
  const std::string prefix = text("[rank ", global, "] ");
  const bool logged = !plan_.logs.empty();
  rank.out = std::make_unique<RankStream>(
      std::move(out.read), out_, plain ? Forward::kWholeLines : Forward::kPrefixedLines,
      prefix, logged ? plan_.logs[2 * index].get() : -1);
  rank.err = std::make_unique<RankStream>(
      std::move(err.read), err_, plain ? Forward::kAsItComes : Forward::kPrefixedLines,
      prefix, logged ? plan_.logs[2 * index + 1].get() : -1);

  // A file that nobody can leave behind, under a name that anyone can open.
  rank.error_file.reset(::memfd_create("cohort-error", MFD_CLOEXEC));
  const std::string error_path =
      text("/proc/", ::getpid(), "/fd/", rank.error_file.get());
  SpawnText spawn;
  spawn.variables = rank_variables(plan_.world, index,
                                   {number_, plan_.options.max_restarts}, error_path);
  if (plan_.threads > 0) {
    spawn.variables.push_back(text("OMP_NUM_THREADS=", plan_.threads));
  }
  if (::isatty(STDERR_FILENO)) spawn.variables.push_back(text("COHORT_STDERR_TTY=", 1));
  if (!plan_.cores.empty()) spawn.cores = plan_.cores[index];
  zygote_.spawn(index, spawn, in.get(), out.write.get(), err.write.get());
}

void Generation::add_polls(std::vector<pollfd>& polls) const {
  for (const Rank& rank : ranks_) {
    for (const RankStream* stream : {rank.out.get(), rank.err.get()}) {
      if (stream->ready_for_more()) polls.push_back({stream->fd(), POLLIN, 0});
    }
  }
}

Clock::time_point Generation::next_deadline() const {
  Clock::time_point next = std::min(kill_at_, abandon_at_);
  for (const Rank& rank : ranks_) {
    const bool draining = rank.ended && (rank.out->open() || rank.err->open());
    if (draining) next = std::min(next, rank.drain_until);
    if (!rank.ended && rank.stopped && !suspended_) {
      next = std::min(next, *rank.stopped + plan_.options.stopped_limit);
    }
  }
  return next;
}

void Generation::advance() {
  const auto now = Clock::now();
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    rank.out->pump();
    rank.err->pump();
    if (rank.ended && now >= rank.drain_until) {
      rank.out->close();
      rank.err->close();
    }
    const bool frozen = !rank.ended && rank.stopped && !suspended_ &&
                        now >= *rank.stopped + plan_.options.stopped_limit;
    if (frozen && rank.given_up.empty()) {
      rank.given_up = text("stopped for ", plan_.options.stopped_limit.count() / 1000.0,
                           " s, so it was killed");
      rank.stopped.reset();
      zygote_.signal(static_cast<int>(i), SIGKILL);
    }
  }
  if (now >= kill_at_) kill();
  if (now >= abandon_at_) lost();
}

void Generation::handle(const Report& report) {
  if (report.index < 0 || report.index >= static_cast<int>(ranks_.size())) return;
  Rank& rank = ranks_[report.index];
  switch (report.kind) {
    case Report::kSpawned:
      rank.pid = report.pid;
      break;
    case Report::kNotSpawned:
      rank.given_up = text("cannot fork: ", strerror(report.status));
      end(report.index, {Report::kExited, report.index, 0, 1 << 8, report.time_ns});
      break;
    case Report::kExited:
      end(report.index, report);
      break;
    case Report::kStopped:
      if (suspended_ || stopping_) break;
      rank.stopped = Clock::now();
      notices_.push_back(text(name(report.index), " was stopped by ",
                              signal_name(report.status), "; it is killed if it rests ",
                              plan_.options.stopped_limit.count() / 1000.0, " s"));
      break;
    case Report::kContinued:
      rank.stopped.reset();
      break;
  }
}

void Generation::end(int index, const Report& report) {
  Rank& rank = ranks_[index];
  rank.ended = true;
  rank.status = report.status;
  rank.ended_ns = report.time_ns;
  rank.drain_until = Clock::now() + kDrainLimit;
  rank.out->pump();
  rank.err->pump();
  rank.killed_by_others = WIFSIGNALED(rank.status) && rank.given_up.empty() &&
                          !(sent_ >> WTERMSIG(rank.status) & 1);
  const bool ours = rank.asked_to_end && !rank.killed_by_others;
  if (!is_fine(rank) && !ours) failed_.push_back(index);
}

void Generation::lost() {
  for (Rank& rank : ranks_) {
    if (rank.ended) continue;
    rank.ended = true;
    rank.asked_to_end = true;
    rank.status = SIGKILL;
    rank.drain_until = Clock::now() + kDrainLimit;
  }
}

void Generation::signal_running(int signal) {
  sent_ |= uint64_t{1} << signal;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!ranks_[i].ended) zygote_.signal(static_cast<int>(i), signal);
  }
}

void Generation::forward(int signal) { signal_running(signal); }

void Generation::stop(int signal) {
  if (stopping_) return;
  stopping_ = true;
  kill_at_ = Clock::now() + plan_.options.grace;
  for (Rank& rank : ranks_) rank.asked_to_end = !rank.ended;
  signal_running(signal);
  signal_running(SIGCONT);  // one that was stopped hears it too
}

void Generation::kill() {
  stopping_ = true;
  kill_at_ = Clock::time_point::max();
  abandon_at_ = std::min(abandon_at_, Clock::now() + kKillLimit);
  for (Rank& rank : ranks_) rank.asked_to_end = !rank.ended || rank.asked_to_end;
  signal_running(SIGKILL);
}

void Generation::suspend(bool suspended) {
  suspended_ = suspended;
  for (Rank& rank : ranks_) rank.stopped.reset();
  signal_running(suspended ? SIGSTOP : SIGCONT);
}

bool Generation::done() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
    return rank.ended && !rank.out->open() && !rank.err->open();
  });
}

int Generation::running() const {
  return static_cast<int>(std::count_if(ranks_.begin(), ranks_.end(),
                                        [](const Rank& rank) { return !rank.ended; }));
}

bool Generation::is_fine(const Rank& rank) const {
  const int code = code_of(rank.status);
  return code == 0 || (code == kStoppedOnRequest && plan_.options.body);
}

bool Generation::is_echo(const Rank& rank) const {
  return plan_.options.body && code_of(rank.status) == kLostPeer;
}

std::string Generation::name(int index) const {
  return text("rank ", plan_.world.first_rank + index, " on ", host_name(), " (pid ",
              ranks_[index].pid, ")");
}

Failure Generation::failure_of(int index) const {
  const Rank& rank = ranks_[index];
  Failure failure;
  failure.rank = plan_.world.first_rank + index;
  failure.host = host_name();
  failure.pid = rank.pid;
  failure.exit_code = code_of(rank.status);
  failure.signal = WIFSIGNALED(rank.status) ? WTERMSIG(rank.status) : 0;
  if (!rank.given_up.empty()) {
    failure.message = rank.given_up;
  } else if (const auto report = read_error_file(rank.error_file.get())) {
    failure.message = report->message;
  } else if (explains_itself(failure.signal)) {
    failure.message = rank.err->last_line();
  }
  failure.message.resize(std::min(failure.message.size(), kLongestMessage));
  return failure;
}

Failure Generation::first_failure() const { return failure_of(failed_.front()); }

ErrorReport Generation::report_of(int index) const {
  const Rank& rank = ranks_[index];
  ErrorReport report{"", rank.ended_ns, rank.ended_ns};
  if (auto own = read_error_file(rank.error_file.get())) {
    report = *own;
    report.latest_ns = std::min(report.latest_ns, rank.ended_ns);
  }
  return report;
}

// The first one seen is the cause, unless another rank's own report shows that it
// failed before: it may only have taken longer to die.
int Generation::first_cause() const {
  int cause = failed_.front();
  ErrorReport earliest = report_of(cause);
  for (int i = 0; i < static_cast<int>(ranks_.size()); ++i) {
    const ErrorReport report = report_of(i);
    if (report.message.empty() || report.latest_ns >= earliest.earliest_ns) continue;
    cause = i;
    earliest = report;
  }
  return cause_behind(cause);
}

// Peers may notice a rank's end, and end themselves, before its end or its report is
// seen here. So what can be no consequence of another rank's failure goes first: the
// death by a signal from outside, and for ranks of ours that lost a peer, any failure
// of another kind.
int Generation::cause_behind(int first) const {
  const auto from_outside = [](const Rank& rank) {
    return rank.killed_by_others && !explains_itself(WTERMSIG(rank.status));
  };
  if (from_outside(ranks_[first])) return first;
  int cause = first;
  int64_t earliest = ranks_[first].ended_ns + kDeathLimit;
  for (int i = 0; i < static_cast<int>(ranks_.size()); ++i) {
    const Rank& rank = ranks_[i];
    const bool own =
        rank.killed_by_others || (!is_echo(rank) && !report_of(i).message.empty());
    if (!from_outside(rank) && !(is_echo(ranks_[first]) && own)) continue;
    if (rank.ended_ns >= earliest) continue;
    cause = i;
    earliest = rank.ended_ns;
  }
  return cause;
}

std::vector<Failure> Generation::failures() const {
  if (failed_.empty()) return {};
  const int cause = first_cause();
  std::vector<Failure> failures{failure_of(cause)};
  for (int index : failed_) {
    if (index != cause) failures.push_back(failure_of(index));
  }
  return failures;
}

std::optional<int> Generation::common_code() const {
  std::optional<int> code;
  for (const Rank& rank : ranks_) {
    if (WIFSIGNALED(rank.status)) return std::nullopt;
    if (code && *code != WEXITSTATUS(rank.status)) return std::nullopt;
    code = WEXITSTATUS(rank.status);
  }
  return code;
}

bool Generation::stopped_on_request() const {
  return plan_.options.body &&
         std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
           return code_of(rank.status) == kStoppedOnRequest;
         });
}

std::vector<std::string> Generation::notices() { return std::exchange(notices_, {}); }

}  // namespace cohort::process
