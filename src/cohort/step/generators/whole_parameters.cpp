// SPDX-License-Identifier: Apache-2.0
// Shard levels 0 to 2: every rank has all parameters, computes its slices one after
// another, and gradients are summed while backward goes on.
#include "cohort/step/generators/generators.h"

namespace cohort {
namespace {

// Level 0 sums everywhere; level 1 leaves each rank the sum of its shard; level 2 does
// so after every slice, so that no rank ever holds a whole gradient for long.
void reduce(ListWriter& list, int bucket, int round) {
  const int level = list.plan().schedule.shard;
  const bool last = round + 1 == list.plan().rounds;
  if (last && list.may_update_at_once())
    return list.reduce_update(bucket, level == 2 ? round : kNone);
  if (level == 0 && last) list.reduce(bucket);
  if (level == 1 && last) list.reduce_scatter(bucket, kNone);
  if (level == 2) list.reduce_scatter(bucket, round);
}

// A bucket is summed as soon as its gradient is whole. Its update follows one bucket
// later, so that a late rank holds nobody up.
void backward(ListWriter& list, int round) {
  const bool last = round + 1 == list.plan().rounds;
  int summed = 0;
  for (int b = list.end() - 1; b >= list.begin(); --b) {
    if (list.has_slice(round)) list.backward(b, round);
    for (int i = 0; i < list.buckets(); ++i) {
      if (!list.plan().schedule.buckets[i].trained || list.last_to_add(i) != b)
        continue;
      reduce(list, i, round);
      if (last && list.may_overlap_updates() && summed > 0) list.update(summed - 1);
      summed = i + 1;
    }
  }
}

}  // namespace

void write_whole_parameters(ListWriter& list) {
  for (const auto& [round, is_backward] : turns_of(list)) {
    if (is_backward) {
      backward(list, round);
      continue;
    }
    if (list.has_slice(round))
      for (int b = list.begin(); b < list.end(); ++b) list.forward(b, round);
    if (round + 1 == list.plan().rounds) list.reduce_loss();
  }
  list.finish_updates();
  list.commit();
}

}  // namespace cohort
