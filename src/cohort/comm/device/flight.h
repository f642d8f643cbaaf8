// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace cohort::device_comm {

// What was started on the device, as the host sees it: done or not. Once its group is
// broken, work of the device ends early and "done" says nothing, so the answer is kept.
class Flight {
 public:
  virtual ~Flight() = default;
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

  // Asks the device. Any thread.
  virtual bool query() = 0;

  std::atomic<bool> done = false;

 protected:
  Flight() = default;
};

}  // namespace cohort::device_comm
