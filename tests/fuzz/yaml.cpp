// SPDX-License-Identifier: Apache-2.0
#include "cohort/config/yaml.h"

#include "fuzz/target.h"

COHORT_FUZZ_TARGET(yaml) {
  allow<ConfigError>([&] {
    size_t letters = 0;
    for (const auto& entry : read_yaml(bytes, "f.yaml")) {
      demand(!entry.key.empty(), "an entry without a key");
      demand(entry.origin.starts_with("f.yaml"), "an entry from nowhere");
      letters += entry.key.size() + entry.value.size();
    }
    // A key has the names above it in front, at most sixteen of them.
    demand(letters <= 17 * (2 * bytes.size() + 10'000), "more than aliases may make");
  });
}
