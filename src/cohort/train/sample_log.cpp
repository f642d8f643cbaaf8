// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/sample_log.h"

#include <fcntl.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/step/slices.h"

namespace cohort {

SampleLog::SampleLog(const std::string& path, const Sampler& sampler, int ranks,
                     int64_t committed, Backlog* backlog)
    : sampler_(sampler), ranks_(ranks), path_(path) {
  const int64_t kept = keep_whole_steps(committed);
  UniqueFd file(::open(
      path.c_str(),
      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (kept > 0 ? 0 : O_TRUNC), 0666));
  if (!file)
    throw ConfigError(text("[train] --sample-log ", path,
                           ": cannot be written; legal: a file in a folder that is "
                           "there and writable"));
  file_ = PatientFile(std::move(file), path, backlog);
  for (int64_t step = kept; step < committed; ++step) write(step);
}

// Cuts the file behind the last step that is whole; returns how many there are.
int64_t SampleLog::keep_whole_steps(int64_t committed) const {
  std::error_code ignored;
  if (committed == 0 || !std::filesystem::is_regular_file(path_, ignored)) return 0;
  std::ifstream in(path_);
  int64_t steps = 0;
  int64_t bytes = 0, whole = 0;
  std::string line;
  for (; steps < committed; ++steps) {
    const auto belongs = [&] {
      int64_t epoch = 0, step = 0;
      if (!std::getline(in, line) || in.eof()) return false;
      bytes += static_cast<int64_t>(line.size()) + 1;
      return (std::istringstream(line) >> epoch >> step) && step == steps + 1;
    };
    int64_t left = sampler_.batch_size(sampler_.position(steps));
    while (left > 0 && belongs()) --left;
    if (left > 0) break;
    whole = bytes;
  }
  std::filesystem::resize_file(path_, static_cast<uintmax_t>(whole), ignored);
  return steps;
}

void SampleLog::write(int64_t step) {
  if (!file_.has_room()) return;
  const Position position = sampler_.position(step);
  std::ostringstream lines;
  for (int rank = 0; rank < ranks_; ++rank) {
    const SliceRange mine = slices_of(rank, ranks_, sampler_.options().slices);
    for (int slice = mine.begin; slice < mine.end; ++slice)
      for (int64_t id : sampler_.slice(position, slice))
        lines << position.epoch + 1 << ' ' << step + 1 << ' ' << rank << ' ' << id
              << '\n';
  }
  file_.append(lines.str());
}

}  // namespace cohort
