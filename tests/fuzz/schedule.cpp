// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/checker.h"
#include "cohort/step/schedule_csv.h"
#include "fuzz/target.h"

// A schedule as a user may have written it, and what the checker says of it.
COHORT_FUZZ_TARGET(schedule) {
  allow<ConfigError>([&] {
    const auto file = from_csv(bytes);
    const std::string once = to_csv(file.schedule, file.times);
    const auto again = from_csv(once);
    demand(to_csv(again.schedule, again.times) == once,
           "a schedule that does not come back");
    (void)check(file.schedule);
  });
}
