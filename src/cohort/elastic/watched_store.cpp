// SPDX-License-Identifier: Apache-2.0
#include "cohort/elastic/watched_store.h"

#include <algorithm>

#include "cohort/core/error.h"

namespace cohort {

// In turns, with a look at the agent between them.
std::string WatchedStore::get(const std::string& key,
                              std::chrono::milliseconds timeout) {
  using SteadyClock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kTurn{100};
  const auto deadline = SteadyClock::now() + timeout;
  for (;;) {
    if (membership_.is_over())
      throw CommError(text("[elastic] waiting for '", key, "': the world is over"));
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
    try {
      return store_.get(key, std::clamp(left, std::chrono::milliseconds{1}, kTurn));
    } catch (const CommError&) {
      if (SteadyClock::now() >= deadline) throw;
    }
  }
}

}  // namespace cohort
