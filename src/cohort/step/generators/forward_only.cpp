// SPDX-License-Identifier: Apache-2.0
// Evaluation: every slice forward, nothing kept, nothing changed.
#include "cohort/step/generators/composers.h"

namespace cohort {

void write_forward_only(ListWriter& list) {
  const bool sharded =
      list.plan().schedule.shard == 3 && list.plan().gather_lane != kComputeLane;
  for (const Turn& turn : list.turns()) {
    if (turn.kind != ActionKind::kForward) continue;
    for (const int b : list.blocks_of(turn)) {
      if (sharded)
        for (int bucket : list.plan().uses[b]) list.gather(bucket, turn.round);
      list.compute(turn.kind, b, turn.round);
      if (sharded)
        for (int bucket : list.plan().uses[b]) list.free_parameters(bucket, turn.round);
    }
  }
  list.commit();
}

}  // namespace cohort
