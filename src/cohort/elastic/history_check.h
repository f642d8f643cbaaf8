// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/elastic/history_record.h"

namespace cohort {

// What a history says, and what is wrong with it.
struct HistoryReport {
  HistoryRun run;
  int64_t records = 0;
  int64_t commands = 0;  // the first, and each that went on
  int64_t worlds = 0;
  int64_t steps = 0;   // committed at the end
  int64_t epochs = 0;  // whole ones, of which each sample had its place exactly once
  int64_t steps_drawn = 0;  // whose samples are known as the ranks drew them
  // Whose record does not say so: an older program's, or of a step that nobody is left
  // to know. Proved is then only what they had to draw.
  int64_t steps_not_drawn = 0;
  int64_t epochs_drawn = 0;  // with such steps alone: each sample drawn exactly once
  int64_t rollbacks = 0;
  int64_t steps_undone = 0;
  int64_t steps_again = 0;      // made again by an exact run, with nothing damaged
  int64_t steps_compared = 0;   // had a hash or loss to be equal to
  int64_t steps_shared = 0;     // that another history has, too
  int64_t values_compared = 0;  // losses and hashes that both have
  int64_t hashes_apart = 0;     // one step's, but of two kinds: not to be compared
  int64_t torn_bytes = 0;       // in a record that could not be finished: no breach
  // One line each, in order: which record and step, what is there, what was expected.
  std::vector<std::string> breaches;
  // If what was to be proved found no fact to be proved on: why. Empty: there were
  // some.
  std::string nothing;

  bool holds() const { return breaches.empty() && nothing.empty(); }
};

// Proves of a history: steps commit once and in order, but for recorded rollbacks; each
// sample is used exactly once per epoch, net of rollbacks, and nothing beyond: by the
// place of a step, and by what its ranks drew; generations count up; a step that was
// made again has the bits it had before, if the run is exact. Clocks prove nothing.
// DataError if the file cannot be read or is no history.
HistoryReport verify_history(const std::string& path);

// Also that two histories agree: equal hashes at equal steps, and equal losses if the
// runs are exact. Counts are those of the first. ConfigError if the runs have not the
// same seed, samples, batch, slices and exactness, or the files are one.
HistoryReport verify_history(const std::string& path, const std::string& other);

}  // namespace cohort
