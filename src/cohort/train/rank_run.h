// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cohort/core/patient_file.h"
#include "cohort/train/reporter.h"
#include "cohort/train/resolved_run.h"

namespace cohort {

// What the program around a rank does for it.
struct RankServices {
  // A signal's number, once somebody has asked for the end of the run.
  const std::atomic<int>& stop;
  // From here on such a signal is an ask to stop: there is something to save.
  std::function<void(bool launched_by_us)> hear_stop;
  // From here on it ends the process: there is nothing to save yet.
  std::function<void()> die_of_stop;
  // Rank 0's; `backlog` takes what a full disk does not.
  std::function<std::unique_ptr<Reporter>(Backlog* backlog)> make_reporter;
  // A line for the user on a rank that has no reporter, or not yet.
  std::function<void(const std::string& line)> warn;
};

struct RankOutcome {
  std::optional<DoneEvent> done;  // none: the run went on, or ended, without this rank
  int exit_code = 0;
};

// One rank of a run, from its environment to its end: finds its world, loads data
// and model, trains, and goes on in the next world after a loss.
//
// Failure: throws the library's errors. Call it once in a process, from its main
// thread.
RankOutcome run_rank(const ResolvedRun& run, const RankServices& services);

}  // namespace cohort
