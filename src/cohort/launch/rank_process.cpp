// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/rank_process.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/core/exit_code.h"
#include "cohort/core/process.h"
#include "cohort/launch/cores.h"

namespace cohort::process {
namespace {

// For output of a dead rank that a process out of our reach holds open.
constexpr std::chrono::milliseconds kDrainLimit{500};
constexpr size_t kLongestMessage = 500;

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

bool explains_itself(int signal) {
  for (int own : {0, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    if (signal == own) return true;
  }
  return false;
}

RankProcess::RankProcess(const RankPlan& plan, ZygoteHandle& zygote, int index,
                         int local_rank)
    : plan_(plan),
      zygote_(zygote),
      index_(index),
      local_rank_(local_rank),
      error_file_(::memfd_create("cohort-error", MFD_CLOEXEC)) {}

std::string RankProcess::error_path() const {
  return text("/proc/", ::getpid(), "/fd/", error_file_.get());
}

void RankProcess::start(AgentStream& out, AgentStream& err, SpawnText spawn, int link) {
  Pipe out_pipe = make_pipe();
  Pipe err_pipe = make_pipe();
  const int rank = plan_.world.first_rank + local_rank_;
  const UniqueFd in = input_of(is_spare() ? -1 : rank);
  out_ = std::make_unique<RankStream>(std::move(out_pipe.read), out,
                                      Forward::kPrefixedLines, "", -1);
  err_ = std::make_unique<RankStream>(std::move(err_pipe.read), err,
                                      Forward::kPrefixedLines, "", -1);
  show(*out_, Forward::kWholeLines, log_fd(0));
  show(*err_, Forward::kAsItComes, log_fd(1));
  if (plan_.threads > 0) {
    spawn.variables.push_back(text("OMP_NUM_THREADS=", plan_.threads));
  }
  if (::isatty(STDERR_FILENO)) {
    spawn.variables.push_back(text("COHORT_STDERR_TTY=", 1));
  }
  if (!is_spare() && !plan_.cores.empty()) spawn.cores = plan_.cores[local_rank_];
  zygote_.spawn(index_, spawn, in.get(), out_pipe.write.get(), err_pipe.write.get(),
                link);
}

int RankProcess::log_fd(int stream) const {
  const size_t log = 2 * local_rank_ + stream;
  return is_spare() || log >= plan_.logs.size() ? -1 : plan_.logs[log].get();
}

void RankProcess::show(RankStream& stream, Forward plain, int log) const {
  const int rank = plan_.world.first_rank + local_rank_;
  const bool is_plain = !is_spare() && rank == 0 && !plan_.options.prefix_all;
  stream.show_as(is_plain ? plain : Forward::kPrefixedLines,
                 is_spare() ? "[spare] " : text("[rank ", rank, "] "), log);
}

void RankProcess::become(int local_rank) {
  local_rank_ = local_rank;
  show(*out_, Forward::kWholeLines, log_fd(0));
  show(*err_, Forward::kAsItComes, log_fd(1));
  if (!plan_.cores.empty()) pin(plan_.cores[local_rank]);
}

void RankProcess::pin(const std::vector<int>& cores) {
  cores_ = cores;
  if (pid_ > 0 && !ended_) pin_process(pid_, cores_);
}

std::string RankProcess::name() const {
  const std::string what =
      is_spare() ? "spare" : text("rank ", plan_.world.first_rank + local_rank_);
  return text(what, " on ", host_name(), " (pid ", pid_, ")");
}

void RankProcess::add_polls(std::vector<pollfd>& polls) const {
  for (const RankStream* stream : {out_.get(), err_.get()}) {
    if (stream->ready_for_more()) polls.push_back({stream->fd(), POLLIN, 0});
  }
}

Clock::time_point RankProcess::next_deadline() const {
  return ended_ && !done() ? drain_until_ : Clock::time_point::max();
}

void RankProcess::pump(Clock::time_point now) {
  out_->pump();
  err_->pump();
  if (!ended_ || now < drain_until_) return;
  out_->close();
  err_->close();
}

void RankProcess::started(int pid) {
  pid_ = pid;
  pin(cores_);
}

void RankProcess::end(int status, int64_t time_ns, uint64_t sent) {
  ended_ = true;
  status_ = status;
  ended_ns_ = time_ns;
  drain_until_ = Clock::now() + kDrainLimit;
  out_->pump();
  err_->pump();
  killed_by_others_ =
      WIFSIGNALED(status) && !given_up() && !(sent >> WTERMSIG(status) & 1);
}

bool RankProcess::done() const { return ended_ && !out_->open() && !err_->open(); }

void RankProcess::give_up(const std::string& why) {
  if (given_up()) return;
  given_up_ = why;
  resting_since_.reset();
  signal(SIGKILL);
}

void RankProcess::rest(bool resting) {
  resting_since_.reset();
  if (resting) resting_since_ = Clock::now();
}

int RankProcess::code() const {
  return WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
}

bool RankProcess::is_fine() const {
  return code() == 0 || (code() == kExitStopped && plan_.options.body);
}

bool RankProcess::is_echo() const {
  return plan_.options.body && code() == kExitLostPeer;
}

bool RankProcess::killed_from_outside() const {
  return killed_by_others_ && !explains_itself(WTERMSIG(status_));
}

ErrorReport RankProcess::report() const {
  ErrorReport report{"", ended_ns_, ended_ns_};
  if (auto own = read_error_file(error_file_.get())) {
    report = *own;
    report.latest_ns = std::min(report.latest_ns, ended_ns_);
  }
  return report;
}

Failure RankProcess::failure() const {
  Failure failure;
  failure.rank = is_spare() ? -1 : plan_.world.first_rank + local_rank_;
  failure.host = host_name();
  failure.pid = pid_;
  failure.exit_code = code();
  failure.signal = WIFSIGNALED(status_) ? WTERMSIG(status_) : 0;
  if (given_up()) {
    failure.message = given_up_;
  } else if (const auto own = read_error_file(error_file_.get())) {
    failure.message = own->message;
  } else if (explains_itself(failure.signal)) {
    failure.message = err_->last_line();
  }
  failure.message.resize(std::min(failure.message.size(), kLongestMessage));
  return failure;
}

}  // namespace cohort::process
