// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/matchings.h"

#include <algorithm>
#include <set>

namespace cohort {

std::vector<std::vector<int>> matchings(std::span<const std::vector<int>> groups) {
  std::vector<std::vector<int>> matchings;
  std::vector<std::set<int>> members;  // by matching
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto fits = [&](const std::set<int>& taken) {
      return std::ranges::none_of(groups[g],
                                  [&](int member) { return taken.contains(member); });
    };
    const auto first = std::ranges::find_if(members, fits);
    const size_t number = static_cast<size_t>(first - members.begin());
    if (first == members.end()) {
      matchings.emplace_back();
      members.emplace_back();
    }
    matchings[number].push_back(static_cast<int>(g));
    members[number].insert(groups[g].begin(), groups[g].end());
  }
  return matchings;
}

}  // namespace cohort
