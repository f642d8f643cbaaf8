// SPDX-License-Identifier: Apache-2.0
#include "cohort/engine/compute_side.h"

#include "cohort/step/buckets.h"
#include "cohort/step/generator.h"

namespace cohort {

std::set<std::pair<int, int>> recomputed_in(const Role& role) {
  std::set<std::pair<int, int>> all;
  for (const auto& action : role.actions)
    if (action.kind == ActionKind::kRecompute) all.emplace(action.block, action.slice);
  return all;
}

std::vector<int> last_adders_of(const Chain& chain, const Schedule& schedule) {
  return last_to_add(bucket_uses(specs_of(chain), schedule.buckets),
                     schedule.buckets.size());
}

}  // namespace cohort
