// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>

#include "cohort/core/error.h"

namespace cohort {

// What a run knows of itself beside its steps and their state. A rank that is new takes
// it over from another.
struct RunFacts {
  int64_t known_good = 0;              // steps after which all replicas were equal
  int64_t validated = 0;               // epochs
  bool skipped = false;                // the last step changed nothing
  bool stopping = false;               // somebody asked for it
  std::optional<double> loss;          // of the last step, if one was made
  std::optional<double> accuracy;      // of the last validation
  std::optional<double> first_step_s;  // from the start of the command
  std::optional<std::chrono::steady_clock::time_point> lost;  // the world before

  // It travels as it is: the ranks of a run are one program.
  std::string bytes() const {
    return {reinterpret_cast<const char*>(this), sizeof(*this)};
  }
  static RunFacts of(const std::string& bytes);
};
static_assert(std::is_trivially_copyable_v<RunFacts>);

inline RunFacts RunFacts::of(const std::string& bytes) {
  COHORT_CHECK(bytes.size() >= sizeof(RunFacts), "a peer's facts are cut short");
  RunFacts facts;
  std::memcpy(&facts, bytes.data(), sizeof(facts));
  return facts;
}

}  // namespace cohort
