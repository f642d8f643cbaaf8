// SPDX-License-Identifier: Apache-2.0
#include "cli/exit_of_error.h"

#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/core/parse.h"
#include "cohort/core/process.h"
#include "cohort/launch/error_file.h"

namespace cohort::cli {

int exit_code_of(const std::exception& error) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  if (!ours) return kExitBug;
  switch (ours->kind()) {
    case ErrorKind::kConfig:
      return kExitConfig;
    case ErrorKind::kData:
      return kExitData;
    case ErrorKind::kComm:
      return kExitLostPeer;
    case ErrorKind::kCheckpoint:
      return kExitCheckpoint;
    case ErrorKind::kBug:
      break;
  }
  return kExitBug;
}

std::function<int()> as_rank(std::function<int()> body) {
  return [body = std::move(body)] {
    try {
      return body();
    } catch (const std::exception& error) {
      write_error_file(error.what());
      return exit_code_of(error);
    }
  };
}

std::chrono::duration<double> process_age() {
  // A script that built the program first says when it was done.
  const char* given = std::getenv("COHORT_BEGAN");
  if (const auto began = given ? try_parse_double(given) : std::nullopt) {
    const std::chrono::duration<double> now =
        std::chrono::system_clock::now().time_since_epoch();
    const double age = now.count() - *began;
    if (age >= 0) return std::chrono::duration<double>(age);
  }
  const auto stat = process_stat(0);
  if (!stat) return std::chrono::duration<double>::zero();
  timespec boot{};
  clock_gettime(CLOCK_BOOTTIME, &boot);
  const double since_boot = static_cast<double>(boot.tv_sec) + 1e-9 * boot.tv_nsec;
  const double started = static_cast<double>(stat->start_ticks) /
                         static_cast<double>(sysconf(_SC_CLK_TCK));
  return std::chrono::duration<double>(since_boot - started);
}

}  // namespace cohort::cli
