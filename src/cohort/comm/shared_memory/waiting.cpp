// SPDX-License-Identifier: Apache-2.0
// How a rank waits, moves its other groups meanwhile, and notices that a peer is lost.
#include <algorithm>
#include <bit>

#include "cohort/comm/shared_memory/shared_group.h"
#include "cohort/core/error.h"
#include "cohort/core/first_line.h"

namespace cohort::shared_memory {
namespace {

using namespace std::chrono_literals;

// With a core for every rank a peer is usually some microseconds away; after this
// long it is not, and somebody else may want the core.
constexpr Nanoseconds kSpin = 100us;
constexpr Nanoseconds kSpinOversubscribed = 2us;
constexpr Nanoseconds kCheckEvery = 50ms;  // for dead peers and deadlines
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
void SharedGroup::wait_for(Goal& goal) {
  try {
    if (spin(goal)) return;
    const Nanoseconds since = time_by(spec_.clock);
    polled_.next_check = since + std::min(kCheckEvery, spec_.timeout);
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
    fail(text(goal.what(), " failed on rank ", rank_, ": ", first_line(error.what())));
  }
}

// Always by the machine's clock: what it limits is the use of a core.
bool SharedGroup::spin(Goal& goal) {
  const Nanoseconds limit = spins_ ? kSpin : kSpinOversubscribed;
  Nanoseconds end{};
  while (true) {
    for (int i = 0; i < kSpinsAClock; ++i) {
      if (goal.attempt() == kDone) return true;
      move_siblings();
      relax();
    }
    check_abort();
    const Nanoseconds time = now();
    if (end == Nanoseconds{}) end = time + limit;
    if (time >= end) return false;
  }
}

// Announces itself at every rank that something of this thread's waits for, looks
// again, and only then sleeps: those ranks publish first and look for sleepers after.
void SharedGroup::nap(Goal& goal, int missing) {
  mine_->waits_for.store(missing + 1, std::memory_order_relaxed);
  std::vector<Awaited> awaited;
  bool all = list_awaited(missing, awaited);
  const Announcement announced(std::move(awaited));
  std::atomic<uint32_t>& own = progress_of_[rank_]->bell;
  const uint32_t bell = own.load();
  const int still = goal.attempt();
  if (still == kDone) return;
  all = move_siblings() && all;
  std::vector<Awaited> now_awaited;
  all = list_awaited(still, now_awaited) && all;
  if (!all || is_aborted() || !announced.covers(now_awaited)) return;
  const auto sleep = [&](Nanoseconds most) { sleep_on(own, bell, most); };
  const auto woken = [&] { return own.load() != bell || is_aborted(); };
  if (spec_.clock) {
    spec_.clock->wait_until(Clock::Time(polled_.next_check), woken, sleep);
  } else {
    sleep(std::clamp<Nanoseconds>(polled_.next_check - now(), 0ns, kCheckEvery));
  }
}

// Others of this thread's groups, as far as they have something to move.
bool SharedGroup::move_siblings() {
  if (!spec_.siblings->others(counted_)) [[likely]]
    return true;
  return spec_.siblings->visit(*this, [](SharedGroup& sibling) { sibling.move_on(); });
}

// What goes wrong is for those who wait in this group.
void SharedGroup::move_on() noexcept {
  if (!counted_ || !broken_.empty()) return;
  try {
    progress();
    if (counted_) check_abort();
  } catch (const CommError&) {
  } catch (const std::exception& error) {
    break_group(text("a call failed on rank ", rank_, ": ", first_line(error.what())));
  }
}

// False where another thread was in the way: then the list may lack some.
bool SharedGroup::list_awaited(int missing, std::vector<Awaited>& list) {
  list.push_back({&status(missing), rank_});
  add_awaited(list);
  if (!spec_.siblings->others(counted_)) return true;
  return spec_.siblings->visit(
      *this, [&](SharedGroup& sibling) { sibling.add_awaited(list); });
}

void SharedGroup::add_awaited(std::vector<Awaited>& list) {
  if (!counted_ || !broken_.empty()) return;
  const auto add = [&](int rank) {
    const Awaited awaited{&status(rank), rank_};
    if (std::find(list.begin(), list.end(), awaited) == list.end())
      list.push_back(awaited);
  };
  if (completed_ < posted_ && blocked_on_ != kDone) add(blocked_on_);
  for (const auto& transfer : transfers_.pending) add(transfer.peer);
}

// Told to the siblings: a group that has nothing outstanding is not looked at.
void SharedGroup::settle() {
  const bool outstanding = completed_ < posted_ || !transfers_.pending.empty();
  if (outstanding == counted_) return;
  counted_ = outstanding;
  spec_.siblings->count(outstanding ? 1 : -1);
}

bool SharedGroup::poll_goal(Goal& goal) {
  try {
    if (goal.attempt() == kDone) return true;
    move_siblings();
    check_abort();
    const Nanoseconds time = coarse_time_by(spec_.clock);
    if (polled_.at != completed_) {
      polled_.at = completed_;
      polled_.since = time;
      polled_.next_check = time + std::min(kCheckEvery, spec_.timeout);
    }
    check_peers(goal, polled_.since);
    return false;
  } catch (const CommError&) {
    return true;  // wait() throws it
  } catch (const std::exception& error) {
    break_group(
        text(goal.what(), " failed on rank ", rank_, ": ", first_line(error.what())));
    return true;
  }
}

// A peer that is late counts from its own last sign of progress, in whichever group
// it showed one: a slow step is not a dead rank.
void SharedGroup::check_peers(Goal& goal, Nanoseconds since) {
  const Nanoseconds time = time_by(spec_.clock);
  if (time < polled_.next_check) return;
  polled_.next_check = time + std::min(kCheckEvery, spec_.timeout);
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
bool SharedGroup::check_lost(Goal& goal, int peer) {
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

std::string SharedGroup::last_words(int peer) {
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

void SharedGroup::wake_sleepers(int word) {
  uint64_t bits = mine_->sleepers[word].load();
  for (; bits != 0; bits &= bits - 1)
    ring_bell(*progress_of_[64 * word + std::countr_zero(bits)]);
}

void SharedGroup::touch() {
  progress_of_[rank_]->stamp.store(coarse_time_by(spec_.clock).count(),
                                   std::memory_order_relaxed);
}

}  // namespace cohort::shared_memory
