// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cohort/launch/agent.h"

namespace cohort::process {

// How often an elastic run may lose ranks, and which losses are a loop: only a step
// that no rank had committed before counts as progress.
class RestartBudget {
 public:
  explicit RestartBudget(int max_restarts) : max_(max_restarts) {}

  // These ranks died, all of them when `highest` steps were committed; -1 is the group
  // as a whole. Counts one restart, or says whose fault it is that there is none.
  struct Refusal {
    Failure cause;
    std::string why;
  };
  std::optional<Refusal> spend(const std::vector<Failure>& dead, int64_t highest);

  int used() const { return used_; }

 private:
  // The last deaths of a rank, with no progress between them.
  struct Deaths {
    int64_t at = -1;
    int count = 0;
  };

  int max_;
  int used_ = 0;
  std::map<int, Deaths> deaths_;
};

}  // namespace cohort::process
