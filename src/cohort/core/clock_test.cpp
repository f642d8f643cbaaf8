// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "cohort/core/error.h"

namespace cohort {
namespace {

using namespace std::chrono_literals;
constexpr auto kLimit = 10s;  // only a hang reaches it

TEST(RealClock, SleepsAtLeastAsLongAsAsked) {
  RealClock clock;
  const auto before = clock.now();
  clock.sleep_for(2ms);
  EXPECT_GE(clock.now() - before, 2ms);
}

TEST(RealClock, WaitEndsAtTheDeadlineOrWhenReady) {
  RealClock clock;
  std::mutex mutex;
  std::condition_variable condition;
  std::unique_lock lock(mutex);
  EXPECT_FALSE(
      clock.wait_until(lock, condition, clock.now() + 1ms, [] { return false; }));
  EXPECT_TRUE(
      clock.wait_until(lock, condition, clock.now() + kLimit, [] { return true; }));
}

TEST(RealClock, WaitsByTheCallersOwnSleep) {
  RealClock clock;
  int sleeps = 0;
  const auto sleep = [&](Clock::Duration most) {
    EXPECT_GT(most, 0ns);
    ++sleeps;
  };
  EXPECT_TRUE(clock.wait_until(
      clock.now() + kLimit, [&] { return sleeps == 3; }, sleep));
  EXPECT_FALSE(clock.wait_until(
      clock.now() + 1ms, [] { return false; }, sleep));
}

TEST(VirtualClock, StandsStillUntilAdvanced) {
  VirtualClock clock;
  const auto start = clock.now();
  EXPECT_EQ(clock.now(), start);
  clock.advance(90s);
  EXPECT_EQ(clock.now() - start, 90s);
  EXPECT_THROW(clock.advance(-1s), BugError);
}

TEST(VirtualClock, WakesOnlySleepersWhoseTimeHasCome) {
  VirtualClock clock;
  std::atomic<int> awake{0};
  std::vector<std::jthread> threads;
  for (int minutes : {1, 2, 3}) {
    threads.emplace_back([&, minutes] {
      clock.sleep_for(std::chrono::minutes(minutes));
      ++awake;
    });
  }
  ASSERT_TRUE(clock.wait_for_sleepers(3, kLimit));
  EXPECT_EQ(awake, 0);
  clock.advance(150s);
  threads[0].join();
  threads[1].join();
  EXPECT_EQ(awake, 2);
  clock.advance(30s);
  threads[2].join();
  EXPECT_EQ(awake, 3);
}

TEST(VirtualClock, WaitEndsWhenReady) {
  VirtualClock clock;
  std::mutex mutex;
  std::condition_variable condition;
  bool flag = false, result = false;
  std::jthread waiter([&] {
    std::unique_lock lock(mutex);
    result = clock.wait_until(lock, condition, clock.now() + 1h, [&] { return flag; });
  });
  ASSERT_TRUE(clock.wait_for_sleepers(1, kLimit));
  {
    const std::lock_guard lock(mutex);
    flag = true;
  }
  condition.notify_all();
  waiter.join();
  EXPECT_TRUE(result);
}

// A wait of an hour for what never comes.
using LongWait = std::function<bool(VirtualClock& clock, Clock::Time deadline)>;

void expect_to_end_at_the_deadline(const LongWait& wait) {
  VirtualClock clock;
  bool result = true;
  std::jthread waiter([&] { result = wait(clock, clock.now() + 1h); });
  ASSERT_TRUE(clock.wait_for_sleepers(1, kLimit));
  clock.advance(1h);
  waiter.join();
  EXPECT_FALSE(result);
}

TEST(VirtualClock, WaitEndsAtTheVirtualDeadline) {
  std::mutex mutex;
  std::condition_variable condition;
  expect_to_end_at_the_deadline([&](VirtualClock& clock, Clock::Time deadline) {
    std::unique_lock lock(mutex);
    return clock.wait_until(lock, condition, deadline, [] { return false; });
  });
}

TEST(VirtualClock, WaitsByTheCallersOwnSleepUntilTheVirtualDeadline) {
  expect_to_end_at_the_deadline([](VirtualClock& clock, Clock::Time deadline) {
    return clock.wait_until(
        deadline, [] { return false; },
        [](Clock::Duration most) { std::this_thread::sleep_for(most); });
  });
}

// Or a test would advance the clock again before those it woke have run.
TEST(VirtualClock, SleepersWhoseTimeHasComeNoLongerCount) {
  VirtualClock clock;
  std::mutex mutex;
  std::condition_variable condition;
  std::unique_lock held(mutex, std::defer_lock);
  std::jthread waiter([&] {
    std::unique_lock lock(mutex);
    clock.wait_until(lock, condition, clock.now() + 1h, [] { return false; });
  });
  ASSERT_TRUE(clock.wait_for_sleepers(1, kLimit));
  held.lock();  // it cannot leave its wait
  clock.advance(1h);
  EXPECT_FALSE(clock.wait_for_sleepers(1, 0ms));
  held.unlock();
}

}  // namespace
}  // namespace cohort
