// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cohort/launch/agent.h"

namespace cohort::process {

// How often an elastic run may lose ranks, and which losses are a loop: a rank that
// dies again must have come further than when it died last. A run that went back and
// makes its steps again may fail there, and go on.
class RestartBudget {
 public:
  explicit RestartBudget(int max_restarts) : max_(max_restarts) {}

  // How many steps are committed, and were before the run went back.
  struct Steps {
    int64_t now = 0;
    int64_t highest = 0;
  };
  // These ranks died, all of them there; -1 is the group as a whole. Counts one
  // restart, or says whose fault it is that there is none.
  struct Refusal {
    Failure cause;
    std::string why;
  };
  std::optional<Refusal> spend(const std::vector<Failure>& dead, Steps made);

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
