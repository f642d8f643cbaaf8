// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/stages.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "cohort/core/error.h"

namespace cohort {
namespace {

std::vector<double> costs_of(std::span<const BlockSpec> blocks) {
  const bool counted = std::ranges::any_of(
      blocks, [](const BlockSpec& block) { return block.cost > 0; });
  std::vector<double> costs;
  for (const auto& block : blocks) {
    double cost = block.cost;
    for (const auto& parameter : block.parameters)
      if (!counted) cost += static_cast<double>(parameter.numel());
    costs.push_back(cost);
  }
  return costs;
}

// least[p][n]: the most costly of p stages of the first n blocks, at best.
std::vector<std::vector<double>> least_costs(const std::vector<double>& costs,
                                             int places) {
  const int blocks = static_cast<int>(costs.size());
  const double no = std::numeric_limits<double>::infinity();
  std::vector least(places + 1, std::vector<double>(blocks + 1, no));
  least[0][0] = 0;
  for (int p = 1; p <= places; ++p)
    for (int end = p; end <= blocks; ++end) {
      double last = 0;
      for (int begin = end - 1; begin >= p - 1; --begin) {
        last += costs[begin];
        least[p][end] = std::min(least[p][end], std::max(least[p - 1][begin], last));
      }
    }
  return least;
}

// Where the last of p stages of the first `end` blocks begins: as late as may be.
int last_cut(const std::vector<std::vector<double>>& least,
             const std::vector<double>& costs, int p, int end) {
  double last = 0;
  for (int begin = end - 1; begin >= p - 1; --begin) {
    last += costs[begin];
    if (std::max(least[p - 1][begin], last) <= least[p][end]) return begin;
  }
  throw BugError("[step] no cut of a chain into stages");
}

}  // namespace

void require_stages(size_t blocks, int places) {
  if (static_cast<int>(blocks) < places)
    throw ConfigError(text("[step] layout pp=", places, ": the model has ", blocks,
                           " blocks, which is no stage for each; legal: pp=1 to ",
                           blocks));
}

std::vector<Stage> make_stages(std::span<const BlockSpec> blocks, int places) {
  require_stages(blocks.size(), places);
  const auto costs = costs_of(blocks);
  const auto least = least_costs(costs, places);
  std::vector<Stage> stages(places);
  int end = static_cast<int>(blocks.size());
  for (int p = places; p > 0; --p) {
    const int begin = last_cut(least, costs, p, end);
    stages[p - 1].place = p - 1;
    stages[p - 1].blocks.resize(end - begin);
    std::iota(stages[p - 1].blocks.begin(), stages[p - 1].blocks.end(), begin);
    end = begin;
  }
  return stages;
}

}  // namespace cohort
