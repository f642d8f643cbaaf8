// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "cohort/core/patient_file.h"
#include "cohort/data/sampler.h"
#include "cohort/engine/step_sums.h"

namespace cohort {

// One line "epoch step rank sample_id" for each sample of a committed step, for all
// ranks in one file. What it writes is what the ranks say they drew: they tell each
// other before they vote, so any one of them can write for all, also for a rank that is
// lost. Steps and epochs count from 1, samples from 0.
class SampleLog {
 public:
  // The run has committed `committed` steps: a file that is there keeps the lines of
  // those that are whole, and loses all others. ConfigError if it cannot be written.
  SampleLog(const std::string& path, const Sampler& sampler, int64_t committed,
            Backlog* backlog = nullptr);

  // The last step it has; 0: none.
  int64_t last() const { return last_; }

  // After the commit of step `step`, behind the last one. What a full disk does not
  // take waits in `backlog`; without one, and for other troubles: DataError.
  void write(int64_t step, const DrawnSamples& drawn);

 private:
  int64_t keep_whole_steps(int64_t committed) const;

  const Sampler& sampler_;
  std::string path_;
  int64_t last_;
  PatientFile file_;
};

}  // namespace cohort
