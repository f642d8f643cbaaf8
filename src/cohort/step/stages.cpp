// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/stages.h"

#include <algorithm>
#include <limits>
#include <numeric>

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

// How long stages take: blocks [begin, end) at the place of stage `stage`.
class Durations {
 public:
  Durations(const std::vector<double>& costs, const std::vector<double>& speeds)
      : sums_(costs.size() + 1, 0), speeds_(speeds) {
    std::partial_sum(costs.begin(), costs.end(), sums_.begin() + 1);
  }
  double of(int stage, int begin, int end) const {
    const double cost = sums_[end] - sums_[begin];
    return speeds_.empty() ? cost : cost / speeds_[stage % speeds_.size()];
  }
  int blocks() const { return static_cast<int>(sums_.size()) - 1; }

 private:
  std::vector<double> sums_;
  const std::vector<double>& speeds_;
};

// least[s][n]: the longest of s stages of the first n blocks, at best.
std::vector<std::vector<double>> least_durations(const Durations& durations,
                                                 int stages) {
  const int blocks = durations.blocks();
  const double no = std::numeric_limits<double>::infinity();
  std::vector least(stages + 1, std::vector<double>(blocks + 1, no));
  least[0][0] = 0;
  for (int s = 1; s <= stages; ++s)
    for (int end = s; end <= blocks; ++end)
      for (int begin = end - 1; begin >= s - 1; --begin)
        least[s][end] =
            std::min(least[s][end],
                     std::max(least[s - 1][begin], durations.of(s - 1, begin, end)));
  return least;
}

// By stage, the block behind its last one; the last stages begin as late as may be.
std::vector<int> balanced_ends(const Durations& durations, int stages) {
  const auto least = least_durations(durations, stages);
  std::vector<int> ends(stages, durations.blocks());
  for (int s = stages; s > 1; --s) {
    const int end = ends[s - 1];
    int begin = end - 1;
    while (std::max(least[s - 1][begin], durations.of(s - 1, begin, end)) >
           least[s][end])
      --begin;
    ends[s - 2] = begin;
  }
  return ends;
}

}  // namespace

std::vector<Stage> make_stages(std::span<const BlockSpec> blocks, int places,
                               const PipelineOptions& options) {
  require_stages(static_cast<int>(blocks.size()), places, options);
  const auto costs = options.costs.empty() ? costs_of(blocks) : options.costs;
  const int count = places * options.stages_per_place;
  const auto ends = options.ends.empty()
                        ? balanced_ends(Durations(costs, options.speeds), count)
                        : options.ends;
  std::vector<Stage> stages(count);
  for (int s = 0; s < count; ++s) {
    const int begin = s == 0 ? 0 : ends[s - 1];
    stages[s].place = s % places;
    stages[s].blocks.resize(ends[s] - begin);
    std::iota(stages[s].blocks.begin(), stages[s].blocks.end(), begin);
  }
  return stages;
}

}  // namespace cohort
