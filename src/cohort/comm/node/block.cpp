// SPDX-License-Identifier: Apache-2.0
// How a rank waits, notices that a peer is lost, and breaks the group.
#include <algorithm>
#include <cstring>

#include "cohort/comm/node/group.h"
#include "cohort/core/error.h"

namespace cohort::node {
namespace {

using namespace std::chrono_literals;

// With a core for every rank a peer is usually some microseconds away; after this
// long it is not, and somebody else may want the core.
constexpr Nanoseconds kSpin = 100us;
constexpr Nanoseconds kSpinOversubscribed = 2us;
constexpr Nanoseconds kCheckEvery = 50ms;  // for dead peers and deadlines
constexpr Nanoseconds kQuiesce = 1s;
constexpr int kSpinsAClock = 64;

// What deadlines and stamps are read from.
Nanoseconds time_by(const Clock* clock) {
  return clock ? clock->now().time_since_epoch() : now();
}

Nanoseconds coarse_time_by(const Clock* clock) {
  return clock ? clock->now().time_since_epoch() : coarse_now();
}

// The one to blame for a late rank may be at the end of a chain of those who wait.
template <typename WaitsFor>
std::string waits_of(int rank, const WaitsFor& waits_for) {
  std::vector<int> chain = {rank};
  std::string said;
  while (const uint32_t next = waits_for(chain.back())) {
    const int r = static_cast<int>(next) - 1;
    said += text(said.empty() ? ", while it" : ", which", " waits for rank ", r);
    if (std::find(chain.begin(), chain.end(), r) != chain.end()) break;
    chain.push_back(r);
  }
  return said;
}

double seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

// The one place where errors of progress become the group's.
void Group::block(Goal& goal) {
  try {
    if (spin(goal)) return;
    const Nanoseconds since = time_by(spec_.clock);
    next_check_ = since + std::min(kCheckEvery, spec_.timeout);
    while (true) {
      const int missing = goal.attempt();
      if (missing == kDone) return mine_->waits_for.store(0, std::memory_order_relaxed);
      // Only now: what all ranks had finished before one aborted still counts.
      check_abort();
      check_peers(goal, since);
      nap(goal, missing);
    }
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& error) {
    break_group(text(goal.what(), " failed on rank ", rank_, ": ", error.what()));
    throw;
  }
}

// Always by the machine's clock: what it limits is the use of a core.
bool Group::spin(Goal& goal) {
  const Nanoseconds limit = spins_ ? kSpin : kSpinOversubscribed;
  Nanoseconds end{};
  while (true) {
    for (int i = 0; i < kSpinsAClock; ++i) {
      if (goal.attempt() == kDone) return true;
      relax();
    }
    check_abort();
    const Nanoseconds time = now();
    if (end == Nanoseconds{}) end = time + limit;
    if (time >= end) return false;
  }
}

// Announces itself at the missing rank's bell, looks again, and only then sleeps:
// that rank publishes first and looks for sleepers after.
void Group::nap(Goal& goal, int missing) {
  Status& theirs = status(missing);
  mine_->waits_for.store(missing + 1, std::memory_order_relaxed);
  theirs.sleepers.fetch_add(1);
  const uint32_t bell = theirs.bell.load();
  int still = kDone;
  try {
    still = goal.attempt();
  } catch (...) {
    theirs.sleepers.fetch_sub(1);
    throw;
  }
  if (still == missing && !is_aborted()) {
    const auto sleep = [&](Nanoseconds most) { sleep_on(theirs.bell, bell, most); };
    const auto woken = [&] { return theirs.bell.load() != bell || is_aborted(); };
    if (spec_.clock) {
      spec_.clock->wait_until(Clock::Time(next_check_), woken, sleep);
    } else {
      sleep(std::clamp<Nanoseconds>(next_check_ - now(), 0ns, kCheckEvery));
    }
  }
  theirs.sleepers.fetch_sub(1);
}

bool Group::poll_goal(Goal& goal) {
  try {
    if (goal.attempt() == kDone) return true;
    check_abort();
    const Nanoseconds time = coarse_time_by(spec_.clock);
    if (polled_at_ != completed_) {
      polled_at_ = completed_;
      polled_since_ = time;
      next_check_ = time + std::min(kCheckEvery, spec_.timeout);
    }
    check_peers(goal, polled_since_);
    return false;
  } catch (const CommError&) {
    return true;  // wait() throws it
  } catch (const std::exception& error) {
    break_group(text(goal.what(), " failed on rank ", rank_, ": ", error.what()));
    return true;
  }
}

void Group::check_broken() {
  if (!broken_.empty()) throw CommError(broken_);
}

void Group::check_abort() {
  if (!is_aborted()) [[likely]] {
    return;
  }
  for (Control* control : {control_, world_control_}) {
    if (control->abort.load() != Control::kAborted) continue;
    broken_ = prefix() + control->reason;
    quiesce();
    throw CommError(broken_);
  }
}

// A peer that is late counts from its own last sign of progress, in whichever group
// it showed one: a slow step is not a dead rank.
void Group::check_peers(Goal& goal, Nanoseconds since) {
  const Nanoseconds time = time_by(spec_.clock);
  if (time < next_check_) return;
  next_check_ = time + std::min(kCheckEvery, spec_.timeout);
  const std::vector<int> missing = goal.missing();
  for (const int peer : missing) {
    if (check_lost(goal, peer)) return;
  }
  const bool late = std::any_of(missing.begin(), missing.end(), [&](int peer) {
    const Nanoseconds stamp(progress_of_[peer]->stamp.load());
    return time > std::max(stamp, since) + spec_.timeout;
  });
  if (!late || goal.attempt() == kDone) return;
  std::string names;
  for (const int peer : missing)
    names += (names.empty() ? "" : "; ") + last_words(peer);
  fail(text("rank ", rank_, " waited ", seconds(time - since), " s for ", goal.what(),
            ", timeout ", seconds(spec_.timeout), " s: ", names));
}

// A peer may leave, or end, right after its last contribution: look again first.
bool Group::check_lost(Goal& goal, int peer) {
  const int world_rank = spec_.world_ranks[peer];
  const bool left = status(peer).left.load() != 0;
  const bool gone = memory().is_gone(world_rank);
  if (!left && !gone) return false;
  if (goal.attempt() == kDone) return true;
  const auto missing = goal.missing();
  if (std::find(missing.begin(), missing.end(), peer) == missing.end()) return true;
  const std::string what =
      gone ? text(" (pid ", memory().pid_of(world_rank), ") is gone")
           : std::string(" has left the group");
  fail(text("rank ", peer, what, ": rank ", rank_, " waits for ", goal.what(), "; ",
            last_words(peer)));
}

std::string Group::last_words(int peer) {
  const Nanoseconds stamp(progress_of_[peer]->stamp.load());
  const uint64_t posted = status(peer).posted.load();
  const std::string last =
      posted == 0
          ? std::string("it has called no collective")
          : text("its last call was ", describe(slot(peer, posted - 1).print.load()),
                 " (collective ", posted - 1, ")");
  const Nanoseconds ago = std::max(time_by(spec_.clock) - stamp, 0ns);
  return text("rank ", peer, " is missing: ", last,
              stamp == 0ns ? std::string(" and made no progress yet")
                           : text(", its last progress ", seconds(ago), " s ago"),
              waits_of(peer, [&](int r) { return status(r).waits_for.load(); }));
}

void Group::abort(std::string_view reason) {
  break_group(text("aborted by rank ", rank_, ": ", reason));
}

// False when the group was broken already.
bool Group::break_group(std::string_view reason) {
  uint32_t none = Control::kNone;
  if (!control_->abort.compare_exchange_strong(none, Control::kWriting)) return false;
  const size_t length = std::min(reason.size(), kReasonBytes - 1);
  std::memcpy(control_->reason, reason.data(), length);
  control_->reason[length] = '\0';
  control_->abort_rank = rank_;
  control_->abort.store(Control::kAborted);
  for (int r = 0; r < size_; ++r) ring_bell(status(r));
  return true;
}

void Group::fail(const std::string& what) {
  broken_ = prefix() + what;
  break_group(text(what, " (seen by rank ", rank_, ")"));
  quiesce();
  throw CommError(broken_);
}

// The caller may free its tensors once it has the error: let peers that work on them
// finish. Those that start later see that the group is broken. By the machine's clock:
// they are not late, they work.
void Group::quiesce() {
  const Nanoseconds end = now() + kQuiesce;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    while (status(r).busy.load() != 0 && now() < end &&
           !memory().is_gone(spec_.world_ranks[r])) {
      relax();
    }
  }
}

void Group::ring_bell(Status& status) {
  status.bell.fetch_add(1);
  wake_all(status.bell);
}

void Group::touch() {
  progress_of_[rank_]->stamp.store(coarse_time_by(spec_.clock).count(),
                                   std::memory_order_relaxed);
}

}  // namespace cohort::node
