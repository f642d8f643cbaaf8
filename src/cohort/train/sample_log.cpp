// SPDX-License-Identifier: Apache-2.0
#include "cohort/train/sample_log.h"

#include <fcntl.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "cohort/core/error.h"

namespace cohort {

SampleLog::SampleLog(const std::string& path, const Sampler& sampler, int64_t committed,
                     Backlog* backlog)
    : sampler_(sampler), path_(path), last_(keep_whole_steps(committed)) {
  UniqueFd file(::open(
      path.c_str(),
      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (last_ > 0 ? 0 : O_TRUNC), 0666));
  if (!file)
    throw ConfigError(text("[train] --sample-log ", path,
                           ": cannot be written; legal: a file in a folder that is "
                           "there and writable"));
  file_ = PatientFile(std::move(file), path, backlog);
}

// Cuts the file behind the last step that is whole and still counts; returns which.
int64_t SampleLog::keep_whole_steps(int64_t committed) const {
  std::error_code ignored;
  if (committed == 0 || !std::filesystem::is_regular_file(path_, ignored)) return 0;
  std::ifstream in(path_);
  int64_t last = 0, step = 0, left = 0;  // `left` lines of `step` are missing
  int64_t bytes = 0, whole = 0;
  for (std::string line; std::getline(in, line) && !in.eof();) {
    int64_t epoch = 0, number = 0;
    if (!(std::istringstream(line) >> epoch >> number)) break;
    if (left > 0 ? number != step : number <= last || number > committed) break;
    if (left == 0) left = sampler_.batch_size(sampler_.position(number - 1));
    step = number;
    bytes += static_cast<int64_t>(line.size()) + 1;
    if (--left > 0) continue;
    last = step;
    whole = bytes;
  }
  in.close();
  std::filesystem::resize_file(path_, static_cast<uintmax_t>(whole), ignored);
  return last;
}

void SampleLog::write(int64_t step, const DrawnSamples& drawn) {
  COHORT_CHECK(step > last_, "step ", step, " is logged; ", last_, " are");
  if (!file_.has_room()) return;
  const int64_t epoch = sampler_.position(step - 1).epoch + 1;
  std::ostringstream lines;
  for (size_t rank = 0; rank < drawn.size(); ++rank)
    for (const int64_t id : drawn[rank])
      lines << epoch << ' ' << step << ' ' << rank << ' ' << id << '\n';
  file_.append(lines.str());
  last_ = step;
}

}  // namespace cohort
