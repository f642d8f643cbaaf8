// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/sample_log.h"

#include "cohort/core/error.h"
#include "cohort/step/slices.h"

namespace cohort {

SampleLog::SampleLog(const std::string& path, const Sampler& sampler, int ranks)
    : sampler_(sampler), ranks_(ranks), path_(path), file_(path) {
  if (!file_)
    throw ConfigError(text("[train] --sample-log ", path,
                           ": cannot be written; legal: a file in a folder that is "
                           "there and writable"));
}

void SampleLog::write(int64_t step) {
  const Position position = sampler_.position(step);
  for (int rank = 0; rank < ranks_; ++rank) {
    const SliceRange mine = slices_of(rank, ranks_, sampler_.options().slices);
    for (int slice = mine.begin; slice < mine.end; ++slice)
      for (int64_t id : sampler_.slice(position, slice))
        file_ << position.epoch + 1 << ' ' << step + 1 << ' ' << rank << ' ' << id
              << '\n';
  }
  file_.flush();
  if (!file_) throw ConfigError(text("[train] --sample-log ", path_, ": write failed"));
}

}  // namespace cohort
