// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/device/patience.h"

#include <memory>
#include <system_error>
#include <thread>

namespace cohort::device_comm {

using namespace std::chrono_literals;

void Pause::take() {
  if (++taken_ < 200)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(50us);
}

bool Seldom::due() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return false;
  next_ = now + kBetween;
  return true;
}

std::future<void> run_apart(const std::function<void()>& work) {
  auto done = std::make_shared<std::promise<void>>();
  auto ended = done->get_future();
  const auto act = [work, done] {
    work();
    done->set_value();
  };
  try {
    std::thread(act).detach();
  } catch (const std::system_error&) {
    act();  // no thread is to be had
  }
  return ended;
}

}  // namespace cohort::device_comm
