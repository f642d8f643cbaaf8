// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>

namespace cohort {

// The one source of time for everything with a deadline, so that a test can play
// minutes in milliseconds. Any thread may call.
class Clock {
 public:
  using Duration = std::chrono::nanoseconds;
  using Time = std::chrono::time_point<std::chrono::steady_clock, Duration>;

  virtual ~Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  virtual Time now() const = 0;
  virtual void sleep_until(Time deadline) = 0;
  void sleep_for(Duration duration) { sleep_until(now() + duration); }

  // Waits on `condition` until ready() or the deadline; returns ready(). As with a
  // condition variable, `lock` is held on entry, on return and while ready() runs.
  virtual bool wait_until(std::unique_lock<std::mutex>& lock,
                          std::condition_variable& condition, Time deadline,
                          const std::function<bool()>& ready) = 0;

  // The same for a caller that sleeps in its own way: `sleep` returns after `most`, or
  // earlier when somebody has changed what ready() looks at.
  virtual bool wait_until(Time deadline, const std::function<bool()>& ready,
                          const std::function<void(Duration most)>& sleep) = 0;

 protected:
  Clock() = default;
};

// The machine's steady clock.
class RealClock : public Clock {
 public:
  Time now() const override { return std::chrono::steady_clock::now(); }
  void sleep_until(Time deadline) override;
  bool wait_until(std::unique_lock<std::mutex>& lock,
                  std::condition_variable& condition, Time deadline,
                  const std::function<bool()>& ready) override;
  bool wait_until(Time deadline, const std::function<bool()>& ready,
                  const std::function<void(Duration most)>& sleep) override;
};

// Stands still until a test advances it; sleepers whose time has come then wake.
class VirtualClock : public Clock {
 public:
  Time now() const override;
  void sleep_until(Time deadline) override;
  bool wait_until(std::unique_lock<std::mutex>& lock,
                  std::condition_variable& condition, Time deadline,
                  const std::function<bool()>& ready) override;
  bool wait_until(Time deadline, const std::function<bool()>& ready,
                  const std::function<void(Duration most)>& sleep) override;

  void advance(Duration duration);

  // Waits, in real time, until `count` threads sleep or wait on this clock: the
  // moment to advance it. Those whose time has come do not count, though they may not
  // have run yet. False if that takes longer than `limit`.
  bool wait_for_sleepers(int count, std::chrono::milliseconds limit);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Time now_{std::chrono::hours(1)};  // not 0, which may stand for never
  std::multiset<Time> deadlines_;    // what the sleepers wait for
};

}  // namespace cohort
