// SPDX-License-Identifier: Apache-2.0
// Evaluation: every slice forward, nothing kept, nothing changed.
#include "cohort/step/generators/generators.h"

namespace cohort {

void write_forward_only(ListWriter& list) {
  const bool sharded =
      list.plan().schedule.shard == 3 && list.plan().gather_lane != kComputeLane;
  for (int round = 0; round < list.plan().rounds; ++round) {
    for (int b = list.begin(); b < list.end(); ++b) {
      if (sharded)
        for (int bucket : list.plan().uses[b]) list.gather(bucket, round);
      if (list.has_slice(round)) list.forward(b, round);
      if (sharded)
        for (int bucket : list.plan().uses[b]) list.free_parameters(bucket, round);
    }
  }
  list.commit();
}

}  // namespace cohort
