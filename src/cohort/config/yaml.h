// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cohort {

// One value of a YAML file; `origin` is "file:line:column".
struct YamlEntry {
  std::string key;
  std::string value;
  std::string origin;
};

// The size of a file of settings: far more than all keys there are.
inline constexpr int64_t kMostYamlBytes = 100'000;

// Nested maps become names with dots, lists of plain values text with commas.
// ConfigError with the place for text that is no YAML, a key that comes twice, a
// key without a value, anything that is not a map of settings, and for one that is
// too long, or would be with its aliases written out. `file` is a name for messages.
std::vector<YamlEntry> read_yaml(std::string_view yaml, const std::string& file);

}  // namespace cohort
