// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace cohort::shared_memory {

// Something to wait for: attempt() moves on without blocking and returns
// SharedGroup::kDone, or a rank that must act first; missing() names all such ranks.
struct Goal {
  virtual int attempt() = 0;
  virtual std::vector<int> missing() = 0;
  virtual std::string what() = 0;
};

}  // namespace cohort::shared_memory
