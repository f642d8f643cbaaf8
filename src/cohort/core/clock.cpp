// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/clock.h"

#include <thread>

#include "cohort/core/error.h"

namespace cohort {

void RealClock::sleep_until(Time deadline) { std::this_thread::sleep_until(deadline); }

bool RealClock::wait_until(std::unique_lock<std::mutex>& lock,
                           std::condition_variable& condition, Time deadline,
                           const std::function<bool()>& ready) {
  return condition.wait_until(lock, deadline, ready);
}

Clock::Time VirtualClock::now() const {
  const std::lock_guard lock(mutex_);
  return now_;
}

void VirtualClock::sleep_until(Time deadline) {
  std::unique_lock lock(mutex_);
  ++sleepers_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return now_ >= deadline; });
  --sleepers_;
}

// advance() cannot take the caller's mutex, so its notification could be lost
// between the look at the time and the wait: hence short slices of real time.
bool VirtualClock::wait_until(std::unique_lock<std::mutex>& lock,
                              std::condition_variable& condition, Time deadline,
                              const std::function<bool()>& ready) {
  const auto count = [&](int change) {
    const std::lock_guard guard(mutex_);
    sleepers_ += change;
    changed_.notify_all();
  };
  if (ready() || now() >= deadline) return ready();
  count(+1);
  while (!ready() && now() < deadline) {
    condition.wait_for(lock, std::chrono::milliseconds(1));
  }
  count(-1);
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
  return changed_.wait_for(lock, limit, [&] { return sleepers_ >= count; });
}

}  // namespace cohort
