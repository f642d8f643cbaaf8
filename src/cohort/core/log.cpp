// SPDX-License-Identifier: Apache-2.0
#include "cohort/core/log.h"

namespace cohort {

std::string_view level_name(Level level) {
  switch (level) {
    case Level::kDebug:
      return "debug";
    case Level::kInfo:
      return "info";
    case Level::kWarning:
      return "warning";
    case Level::kError:
      break;
  }
  return "error";
}

void FilterSink::write(Level level, std::string_view line) {
  if (level >= lowest_) next_.write(level, line);
}

}  // namespace cohort
