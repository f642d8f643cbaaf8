// SPDX-License-Identifier: Apache-2.0
#pragma once

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

// Nested maps become names with dots, lists of plain values text with commas.
// ConfigError with the place for text that is no YAML, a key that comes twice, a
// key without a value, anything that is not a map of settings. `file` is a name
// for messages.
std::vector<YamlEntry> read_yaml(std::string_view yaml, const std::string& file);

}  // namespace cohort
