// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/core/error.h"
#include "cohort/core/nearest.h"
#include "cohort/core/parse.h"

namespace cohort::cli {

// `values` has at least one.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// "1,8,64"; empty: one rank. ConfigError for what is no list of numbers.
inline std::vector<int> parse_rank_list(const std::string& ranks) {
  std::vector<int> list;
  for (const auto& part : split(ranks.empty() ? "1" : ranks, ','))
    list.push_back(static_cast<int>(parse_int(part, "-n", 1, 1 << 16)));
  return list;
}

// ConfigError unless each rank has all of each layer, for a case whose layers cannot be
// cut.
inline void require_whole_layers(std::string_view name, int tensor_ranks) {
  if (tensor_ranks > 1)
    throw ConfigError(text("[bench] layout tp=", tensor_ranks, ": the layers of ", name,
                           " cannot be cut; legal: tp=1"));
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
