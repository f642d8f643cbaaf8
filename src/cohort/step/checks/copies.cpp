// SPDX-License-Identifier: Apache-2.0
// R9 also: a state that one place along the pipeline has is held by another, too. Ranks
// with parts of the same tensors have one list, in which provenance asks for a Mirror.
#include <map>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/step/checks/checks.h"

namespace cohort {

void check_second_copies(const Schedule& schedule, const CheckOptions& options) {
  const bool alone =
      schedule.mesh.size(kDataAxes) == 1 && schedule.mesh.size(Axis::kPipe) > 1;
  if (!(options.elastic || schedule.elastic) || !alone) return;
  std::map<int, std::vector<std::pair<int, int>>>
      updates;  // role and action, by bucket
  for (int r = 0; r < static_cast<int>(schedule.roles.size()); ++r) {
    const auto& actions = schedule.roles[r].actions;
    for (int i = 0; i < static_cast<int>(actions.size()); ++i)
      if (actions[i].kind == ActionKind::kUpdate)
        updates[actions[i].buckets[0]].emplace_back(r, i);
  }
  for (const auto& [bucket, where] : updates)
    if (where.size() == 1)
      refuse_role(
          schedule, where[0].first, where[0].second,
          text("R9: changes state of bucket ", bucket,
               " that no other rank has; legal: where a second copy is updated"));
}

}  // namespace cohort
