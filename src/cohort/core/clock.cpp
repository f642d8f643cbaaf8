// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/clock.h"

#include <iterator>
#include <thread>

#include "cohort/core/error.h"

namespace cohort {

void RealClock::sleep_until(Time deadline) { std::this_thread::sleep_until(deadline); }

bool RealClock::wait_until(std::unique_lock<std::mutex>& lock,
                           std::condition_variable& condition, Time deadline,
                           const std::function<bool()>& ready) {
  return condition.wait_until(lock, deadline, ready);
}

bool RealClock::wait_until(Time deadline, const std::function<bool()>& ready,
                           const std::function<void(Duration most)>& sleep) {
  for (Duration left; !ready() && (left = deadline - now()) > Duration::zero();)
    sleep(left);
  return ready();
}

Clock::Time VirtualClock::now() const {
  const std::lock_guard lock(mutex_);
  return now_;
}

void VirtualClock::sleep_until(Time deadline) {
  std::unique_lock lock(mutex_);
  const auto mine = deadlines_.insert(deadline);
  changed_.notify_all();
  changed_.wait(lock, [&] { return now_ >= deadline; });
  deadlines_.erase(mine);
}

bool VirtualClock::wait_until(std::unique_lock<std::mutex>& lock,
                              std::condition_variable& condition, Time deadline,
                              const std::function<bool()>& ready) {
  return wait_until(deadline, ready,
                    [&](Duration most) { condition.wait_for(lock, most); });
}

// advance() cannot take the caller's lock, so its notification could be lost between
// the look at the time and the sleep: hence short slices of real time.
bool VirtualClock::wait_until(Time deadline, const std::function<bool()>& ready,
                              const std::function<void(Duration most)>& sleep) {
  if (ready() || now() >= deadline) return ready();
  std::unique_lock guard(mutex_);
  const auto mine = deadlines_.insert(deadline);
  changed_.notify_all();
  guard.unlock();
  while (!ready() && now() < deadline) sleep(std::chrono::milliseconds(1));
  guard.lock();
  deadlines_.erase(mine);
  return ready();
}

void VirtualClock::advance(Duration duration) {
  COHORT_CHECK(duration >= Duration::zero(), "time does not go back");
  const std::lock_guard lock(mutex_);
  now_ += duration;
  changed_.notify_all();
}

bool VirtualClock::wait_for_sleepers(int count, std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [&] {
    return std::distance(deadlines_.upper_bound(now_), deadlines_.end()) >= count;
  });
}

}  // namespace cohort
