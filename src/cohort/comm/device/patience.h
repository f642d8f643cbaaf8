// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <future>

namespace cohort::device_comm {

// How long the end of a group may hold its rank up.
constexpr auto kEndPatience = std::chrono::seconds(5);

// Sleeps a little longer each time, up to a twentieth of a millisecond.
class Pause {
 public:
  void take();

 private:
  int taken_ = 0;
};

// True every now and then: what costs more than a look is asked no more often.
class Seldom {
 public:
  bool due();

 private:
  static constexpr auto kBetween = std::chrono::milliseconds(20);
  std::chrono::steady_clock::time_point next_ =
      std::chrono::steady_clock::now() + kBetween;
};

// Runs `work` on another thread, which nobody has to wait for.
std::future<void> run_apart(const std::function<void()>& work);

}  // namespace cohort::device_comm
