// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <utility>

#include "cohort/work.h"

namespace cohort {

// Communication in flight, and what is done with its result when it is waited for.
struct PendingWork {
  Work work;
  std::function<void()> then;

  // On a device its later work waits, not the host; the tensors of the call may go.
  void finish() {
    std::exchange(work, {}).join();
    if (auto act = std::exchange(then, nullptr)) act();
  }
};

}  // namespace cohort
