// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/manifest.h"
#include "fuzz/target.h"

COHORT_FUZZ_TARGET(weight_map) {
  allow<CheckpointError>([&] {
    const auto map = parse_weight_map(bytes, "index");
    demand(parse_weight_map(format_weight_map(map, 1), "index") == map,
           "an index that does not come back");
  });
}
