// SPDX-License-Identifier: Apache-2.0
// How a rank waits, and moves its other groups meanwhile.
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
constexpr int kSpinsAClock = 64;

}  // namespace

// The one place where errors of progress become the group's.
void SharedGroup::wait_for(Goal& goal) {
  try {
    if (spin(goal)) return;
    const Nanoseconds since = spec_.time();
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

// What goes wrong is for the ranks that wait in this group.
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
    const Nanoseconds time = spec_.coarse_time();
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

void SharedGroup::wake_sleepers(int word) {
  uint64_t bits = mine_->sleepers[word].load();
  for (; bits != 0; bits &= bits - 1)
    ring_bell(*progress_of_[64 * word + std::countr_zero(bits)]);
}

void SharedGroup::touch() {
  progress_of_[rank_]->stamp.store(spec_.coarse_time().count(),
                                   std::memory_order_relaxed);
}

}  // namespace cohort::shared_memory
