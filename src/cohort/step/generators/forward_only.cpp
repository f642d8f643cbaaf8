// SPDX-License-Identifier: Apache-2.0
// Evaluation: every slice forward, nothing kept, nothing changed.
#include "cohort/step/generators/generators.h"

namespace cohort {

void write_forward_only(ListWriter& list) {
  const bool sharded =
      list.plan().schedule.shard == 3 && list.plan().gather_lane != kComputeLane;
  for (int round = 0; round < list.plan().rounds; ++round) {
    for (int b = 0; b < list.blocks(); ++b) {
      std::vector<int> gathered;
      if (sharded)
        for (int bucket : list.plan().uses[b])
          gathered.push_back(list.gather(bucket, round, {list.last_action()}));
      if (list.has_slice(round)) list.forward(b, round, gathered);
      if (sharded)
        for (size_t i = 0; i < gathered.size(); ++i)
          list.free_parameters(list.plan().uses[b][i], round, gathered[i]);
    }
  }
  list.commit();
}

}  // namespace cohort
