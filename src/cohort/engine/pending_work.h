// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <utility>

#include "cohort/comm/work.h"

namespace cohort {

// Communication in flight, and what is done with its result when it is waited for.
struct PendingWork {
  Work work;
  std::function<void()> then;

  void finish() {
    work.wait();
    if (auto act = std::exchange(then, nullptr)) act();
  }
};

}  // namespace cohort
