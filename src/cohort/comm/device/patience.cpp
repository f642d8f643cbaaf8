// SPDX-License-Identifier: Apache-2.0
#include "cohort/comm/device/patience.h"

#include <future>
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

bool run_apart(const std::function<void()>& work) {
  auto done = std::make_shared<std::promise<void>>();
  auto ended = done->get_future();
  try {
    std::thread([work, done] {
      work();
      done->set_value();
    }).detach();
  } catch (const std::system_error&) {
    work();  // no thread is to be had
    return true;
  }
  return ended.wait_for(kEndPatience) == std::future_status::ready;
}

}  // namespace cohort::device_comm
