// SPDX-License-Identifier: Apache-2.0
// Shard levels 0 to 2: every rank has all parameters, computes its slices one after
// another, and gradients are summed while backward goes on.
#include <algorithm>

#include "cohort/step/generators/composers.h"

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
class WholeList {
 public:
  explicit WholeList(ListWriter& list) : list_(list) {}

  void write() {
    const auto turns = list_.turns();
    const auto last_forward = std::find_if(
        turns.rbegin(), turns.rend(),
        [](const Turn& turn) { return turn.kind == ActionKind::kForward; });
    for (const Turn& turn : turns) {
      take(turn);
      if (turn == *last_forward) list_.reduce_loss();
    }
    list_.finish_updates();
    list_.commit();
  }

 private:
  void take(const Turn& turn) {
    for (const int b : list_.blocks_of(turn)) {
      list_.compute(turn.kind, b, turn.round);
      if (completes_gradients(turn.kind)) reduce_behind(b, turn.round);
    }
  }

  void reduce_behind(int block, int round) {
    const bool last = round + 1 == list_.plan().rounds;
    for (int i = 0; i < list_.buckets(); ++i) {
      if (!list_.plan().schedule.buckets[i].trained || list_.last_to_add(i) != block)
        continue;
      reduce(list_, i, round);
      if (!last) continue;
      if (list_.may_overlap_updates() && summed_ != kNone) list_.update(summed_);
      summed_ = i;
    }
  }

  ListWriter& list_;
  int summed_ = kNone;  // the bucket that was last
};

}  // namespace

void write_whole_parameters(ListWriter& list) { WholeList(list).write(); }

}  // namespace cohort
