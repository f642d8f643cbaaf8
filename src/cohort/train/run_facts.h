// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <tuple>

#include "cohort/core/record.h"

namespace cohort {

// What a run knows of itself beside its steps and their state. A rank that is new takes
// it over from another.
struct RunFacts {
  int64_t known_good = 0;              // steps after which all replicas were equal
  int64_t validated = 0;               // epochs
  bool skipped = false;                // the last step changed nothing
  bool stopping = false;               // somebody asked for it
  std::optional<double> loss;          // the last step's, if one was made
  std::optional<double> accuracy;      // the last validation's
  std::optional<double> first_step_s;  // from the start of the command
  std::optional<std::chrono::steady_clock::time_point> lost;  // the world before
};
auto record_fields(Alike<RunFacts> auto& f) {
  return std::tie(f.known_good, f.validated, f.skipped, f.stopping, f.loss, f.accuracy,
                  f.first_step_s, f.lost);
}

}  // namespace cohort
