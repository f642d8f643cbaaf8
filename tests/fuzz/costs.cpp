// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/cost_table.h"
#include "fuzz/target.h"

COHORT_FUZZ_TARGET(costs) {
  allow<ConfigError>([&] {
    const std::string once = to_csv(costs_from_csv(bytes));
    demand(to_csv(costs_from_csv(once)) == once, "a table that does not come back");
  });
}
