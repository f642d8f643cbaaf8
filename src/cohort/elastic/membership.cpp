// SPDX-License-Identifier: Apache-2.0
#include "cohort/elastic/membership.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <cstdlib>

#include "cohort/core/error.h"

namespace cohort {
namespace {

constexpr std::chrono::seconds kAgentAnswerLimit{30};

}  // namespace

// Its own lock, so that an abort never waits for what the message thread holds.
struct Membership::Watched {
  std::mutex mutex;
  Communicator* comm = nullptr;
  bool aborted = false;

  void abort(const std::string& reason) {
    const std::lock_guard lock(mutex);
    if (!comm || aborted) return;
    aborted = true;
    comm->abort(reason);
  }
};

Membership::Watch::Watch(std::shared_ptr<Watched> watched)
    : watched_(std::move(watched)) {}

Membership::Watch::~Watch() {
  if (!watched_) return;
  const std::lock_guard lock(watched_->mutex);
  watched_->comm = nullptr;
}

std::unique_ptr<Membership> Membership::from_env() {
  const char* fd = std::getenv("COHORT_AGENT_FD");
  if (!fd || !*fd) return nullptr;
  AgentLink link{UniqueFd(std::atoi(fd))};
  ::fcntl(link.fd(), F_SETFD, FD_CLOEXEC);  // it came through an exec, perhaps
  ::unsetenv("COHORT_AGENT_FD");
  link.send(LinkMessage::kTaken, 0);
  std::optional<World> first;
  if (!std::getenv("COHORT_SPARE")) first = world_from_env();
  return std::make_unique<Membership>(std::move(link), std::move(first));
}

Membership::Membership(AgentLink link, std::optional<World> first)
    : link_(std::move(link)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      first_(std::move(first)) {
  auto page = link_.receive();
  if (!page || page->kind != LinkMessage::kProgressPage) {
    throw CommError("[elastic.membership] the agent's link carries no progress page");
  }
  progress_page_ = std::make_unique<ProgressPage>(std::move(page->fd));
  if (first_) current_ = *first_;
  start();
}

// Signals are for the threads that were here before.
void Membership::start() {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { listen(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Membership::~Membership() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_.get(), &one, sizeof one);
  thread_.join();
}

void Membership::listen() noexcept {
  pollfd events[2] = {{link_.fd(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  while (link_.open()) {
    ::poll(events, 2, -1);
    if (events[1].revents) return;
    while (auto message = link_.receive()) handle(*message);
  }
  {
    const std::lock_guard lock(mutex_);
    if (ended_.empty()) ended_ = "the agent is gone";
  }
  news_.notify_all();
  abort_watched();
}

void Membership::handle(LinkMessage& message) {
  {
    const std::lock_guard lock(mutex_);
    switch (message.kind) {
      case LinkMessage::kWorld:
        try {
          next_ = decode_world(message.text);
        } catch (const CommError& error) {
          ended_ = error.what();
        }
        break;
      case LinkMessage::kBroken:
        if (message.generation == current_.generation) broken_ = message.text;
        break;
      case LinkMessage::kFinished:
        finished_ = true;
        break;
      case LinkMessage::kDismissed:
        dismissed_ = true;
        break;
      case LinkMessage::kStop:
        stop_signal_.store(std::atoi(message.text.c_str()));
        break;
      case LinkMessage::kRunEnds:
        ended_ = "the run ends: " + message.text;
        break;
      case LinkMessage::kHeld:
        answer_ = HeldMemory{std::move(message.text), std::move(message.fd)};
        break;
      default:
        break;
    }
  }
  news_.notify_all();
  if (message.kind != LinkMessage::kHeld) abort_watched();
}

bool Membership::over() const { return dismissed_ || next_ || !ended_.empty(); }

std::string Membership::why_over() const {
  if (dismissed_) return "the run goes on without this rank";
  if (!ended_.empty()) return ended_;
  if (!next_) return broken_;
  return text("generation ", current_.generation, " is over: generation ",
              next_->generation, " has ", next_->size, " ranks");
}

void Membership::abort_watched() {
  std::vector<std::shared_ptr<Watched>> watched;
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    if (!doomed()) return;
    reason = "[elastic] " + why_over();
    for (const auto& weak : watched_) {
      if (auto one = weak.lock()) watched.push_back(std::move(one));
    }
  }
  for (const auto& one : watched) one->abort(reason);
}

Membership::Watch Membership::watch(Communicator& comm) {
  auto watched = std::make_shared<Watched>();
  watched->comm = &comm;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(watched_, [](const auto& weak) { return weak.expired(); });
    watched_.push_back(watched);
  }
  abort_watched();
  return Watch(std::move(watched));
}

std::optional<World> Membership::first_world() {
  if (is_spare()) tell(LinkMessage::kWaiting, "");
  std::unique_lock lock(mutex_);
  if (is_spare()) news_.wait(lock, [&] { return over(); });
  if (dismissed_ || (is_spare() && !ended_.empty())) return std::nullopt;
  enter(next_ ? *next_ : *first_);
  return current_;
}

void Membership::enter(const World& world) {
  current_ = world;
  next_.reset();
  broken_.clear();
}

bool Membership::is_over() const {
  std::lock_guard lock(mutex_);
  return doomed();
}

void leave_world(Communicator& comm, const Membership* membership) {
  try {
    comm.barrier().wait();
  } catch (const CommError&) {
    if (!membership || !membership->finished()) throw;
  }
}

std::optional<World> Membership::world_after(const std::string& why) {
  try {
    return next_world(why);
  } catch (const Dismissed&) {
    return std::nullopt;
  }
}

World Membership::next_world(const std::string& why, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::unique_lock lock(mutex_);
  if (!over()) {
    lock.unlock();
    tell(LinkMessage::kLost, why);
    lock.lock();
  }
  if (!news_.wait_until(lock, deadline, [&] { return over(); })) {
    throw CommError(text("[elastic.membership] the agent opened no new world within ",
                         limit.count() / 1000.0, " s of: ", why));
  }
  if (dismissed_) throw Dismissed();
  if (!ended_.empty()) throw CommError(text("[elastic] ", ended_, "; before: ", why));
  enter(*next_);
  return current_;
}

void Membership::finish(std::chrono::milliseconds limit) {
  tell(LinkMessage::kFinish, "");
  std::unique_lock lock(mutex_);
  news_.wait_for(lock, limit, [&] { return finished_ || doomed(); });
  if (finished_) return;
  throw CommError("[elastic] the run is not done: " +
                  (doomed() ? why_over() : text("the agent did not answer")));
}

bool Membership::finished() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

void Membership::committed(int64_t steps) {
  const auto [rank, generation] = [&] {
    const std::lock_guard lock(mutex_);
    return std::pair(current_.rank, current_.generation);
  }();
  progress_page_->commit(rank, steps, generation);
}

int64_t Membership::committed_before() const { return progress_page_->highest(); }

bool Membership::validated(int64_t epoch) { return progress_page_->validate(epoch); }

bool Membership::tell_done() { return progress_page_->finish(); }

int64_t Membership::validated_before() const { return progress_page_->validated(); }

// False when the agent is gone.
bool Membership::tell(LinkMessage::Kind kind, std::string_view text, int fd) {
  int generation;
  {
    const std::lock_guard lock(mutex_);
    generation = current_.generation;
  }
  return link_.send(kind, generation, text.substr(0, 4096), fd, kAgentAnswerLimit);
}

void Membership::hold(const std::string& name, int fd) {
  COHORT_CHECK(!name.empty() && fd >= 0, "memory to hold has a name and a descriptor");
  if (!tell(LinkMessage::kHold, name, fd)) {
    throw CommError(text("[elastic.membership] the agent does not take '", name, "'"));
  }
}

std::vector<HeldMemory> Membership::held() {
  const std::lock_guard one_at_a_time(asking_);
  std::vector<HeldMemory> all;
  while (auto next = held_behind(all.empty() ? "" : all.back().name)) {
    all.push_back(std::move(*next));
  }
  return all;
}

std::optional<HeldMemory> Membership::held_behind(const std::string& name) {
  tell(LinkMessage::kNextHeld, name);
  std::unique_lock lock(mutex_);
  const bool came = news_.wait_for(lock, kAgentAnswerLimit,
                                   [&] { return answer_ || !ended_.empty(); });
  if (!came || !answer_) {
    throw CommError(text("[elastic.membership] the agent does not say what it keeps: ",
                         ended_.empty() ? "no answer" : ended_));
  }
  std::optional<HeldMemory> answer = std::exchange(answer_, std::nullopt);
  if (!answer->fd) return std::nullopt;
  return answer;
}

}  // namespace cohort
