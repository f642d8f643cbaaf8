// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/nearest.h"
#include "cohort/core/parse.h"

namespace cohort::cli {

// Of at least one value.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// The case of that name. ConfigError with the nearest for a name that is not there;
// `where`: " for GPUs", or nothing.
template <typename Cases>
const auto& find_case(const Cases& cases, const std::string& name, const char* where) {
  std::vector<std::string> legal;
  for (const auto& entry : cases) {
    if (entry.name == name) return entry;
    legal.emplace_back(entry.name);
  }
  throw ConfigError(text("[bench] unknown benchmark '", name, "'", where, "; nearest: ",
                         nearest(name, legal), "; legal: ", join(legal, ", ")));
}

}  // namespace cohort::cli
