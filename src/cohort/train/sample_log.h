// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "cohort/core/patient_file.h"
#include "cohort/data/sampler.h"

namespace cohort {

// One line "epoch step rank sample_id" for each sample of a committed step, for all
// ranks in one file. Who computes which sample is a pure function of the sampler, so
// one rank can write for all. Steps and epochs count from 1, samples from 0.
class SampleLog {
 public:
  // Of a run that has committed so many steps: a file that is there keeps the lines of
  // those, loses all others, and gets those that a killed writer left out. ConfigError
  // if it cannot be written.
  SampleLog(const std::string& path, const Sampler& sampler, int ranks,
            int64_t committed, Backlog* backlog = nullptr);

  // After the commit of that step; `step` counts from 0. What a full disk does not take
  // waits in `backlog`; without one, and for other troubles: DataError.
  void write(int64_t step);

 private:
  int64_t keep_whole_steps(int64_t committed) const;

  const Sampler& sampler_;
  int ranks_;
  std::string path_;
  PatientFile file_;
};

}  // namespace cohort
