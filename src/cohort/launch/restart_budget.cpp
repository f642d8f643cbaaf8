// SPDX-License-Identifier: Apache-2.0
#include "cohort/launch/restart_budget.h"

#include <algorithm>

#include "cohort/core/error.h"
#include "cohort/core/exit_code.h"

namespace cohort::process {
namespace {

constexpr int kMostDeathsAtAStep = 3;

// It would fail in the same way again: because of its configuration, or before the run
// came to anything.
bool would_repeat(const Failure& failure, int64_t highest) {
  if (failure.rank < 0 || failure.signal != 0) return false;
  return failure.exit_code == kExitConfig ||
         (highest == 0 && failure.exit_code != kExitLostPeer);
}

}  // namespace

std::optional<RestartBudget::Refusal> RestartBudget::spend(
    const std::vector<Failure>& dead, Steps made) {
  for (const Failure& failure : dead) {
    if (would_repeat(failure, made.highest)) return Refusal{failure, ""};
    Deaths& deaths = deaths_[failure.rank];
    deaths.count = made.now > deaths.at ? 1 : deaths.count + 1;
    deaths.at = made.now;
    if (deaths.count < kMostDeathsAtAStep) continue;
    return Refusal{failure, text("failed for the third time after step ", made.now,
                                 ", with none committed since")};
  }
  // One that only lost a peer is not the cause where there is another.
  const auto cause = std::find_if(dead.begin(), dead.end(), [](const Failure& failure) {
    return failure.exit_code != kExitLostPeer;
  });
  if (used_ >= max_) {
    return Refusal{cause == dead.end() ? dead.front() : *cause,
                   max_ == 0 ? "" : text("all ", max_, " restarts are spent")};
  }
  ++used_;
  return std::nullopt;
}

}  // namespace cohort::process
