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
  int64_t epochs = 0;  // of which every sample is proved to be used exactly once
  int64_t rollbacks = 0;
  int64_t steps_undone = 0;
  int64_t steps_compared = 0;  // had a hash or loss to be equal to
  int64_t torn_bytes = 0;      // of a record that could not be finished: no breach
  // One line each, in order: which record and step, what is there, what was expected.
  std::vector<std::string> breaches;

  bool holds() const { return breaches.empty(); }
};

// Proves of a history: steps commit once and in order, but for recorded rollbacks; each
// sample is used exactly once an epoch, net of rollbacks, and nothing beyond;
// generations count up; a step that was made again has the bits it had before, if the
// run is exact. DataError if the file cannot be read or is no history.
HistoryReport verify_history(const std::string& path);

// Also that two histories agree: same data, and equal hashes at equal steps (and
// losses, if both runs are exact). Counts are those of the first.
HistoryReport verify_history(const std::string& path, const std::string& other);

}  // namespace cohort
