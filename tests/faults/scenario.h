// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string>

namespace cohort::threads {

// What happens in a run besides the faults that are tried.
enum class Plot {
  kCalm,
  kKilled,   // a rank dies, so there is a recovery to strike at
  kFlipped,  // a bit flips, so the run goes back
  kHealed,   // a bit flips in a run that is not exact, so the odd one is healed
  kGrows,
  kShrinks,
  kResumed,  // the run goes on from a folder
};
inline constexpr const char* kPlotNames[] = {"calm",  "killed",  "flipped", "healed",
                                             "grows", "shrinks", "resumed"};

struct Scenario {
  Plot plot = Plot::kCalm;
  int ranks = 2;
  int shard = 0;
  bool async = false;  // checkpoints are written in the background
  int stages = 1;      // of a pipeline
  bool calls = false;  // blocks communicate inside, so the run is not exact
};

inline std::ostream& operator<<(std::ostream& out, const Scenario& s) {
  return out << kPlotNames[static_cast<int>(s.plot)] << "_n" << s.ranks << "_shard"
             << s.shard << (s.async ? "_async" : "")
             << (s.stages > 1 ? "_pp" + std::to_string(s.stages) : "")
             << (s.calls ? "_calls" : "");
}

}  // namespace cohort::threads
