// SPDX-License-Identifier: Apache-2.0
// Shard level 3: parameters too are cut over the ranks. A block's are gathered before
// it needs them, a few uses ahead, and dropped when it is done.
#include <algorithm>

#include "cohort/step/generators/generators.h"

namespace cohort {
namespace {

// A forward or a backward of one block.
struct Use {
  int block;
  int round;
  bool backward;
};

std::vector<Use> uses_of(const ListWriter& list) {
  std::vector<Use> uses;
  for (const auto& [round, backward] : turns_of(list)) {
    for (int b = list.begin(); !backward && b < list.end(); ++b)
      uses.push_back({b, round, false});
    for (int b = list.end() - 1; backward && b >= list.begin(); --b)
      uses.push_back({b, round, true});
  }
  return uses;
}

class ShardedList {
 public:
  explicit ShardedList(ListWriter& list)
      : list_(list), uses_(uses_of(list)), whole_(list.buckets(), false) {}

  void write() {
    for (size_t i = 0; i < uses_.size(); ++i) {
      const size_t ahead = std::min(
          uses_.size() - 1, i + static_cast<size_t>(list_.plan().options.prefetch));
      for (size_t j = i; j <= ahead; ++j) gather(j);
      compute(uses_[i]);
      drop(i);
    }
    list_.finish_updates();
    list_.commit();
  }

 private:
  const std::vector<int>& buckets_of(const Use& use) const {
    return list_.plan().uses[use.block];
  }

  bool needs(size_t use, int bucket) const {
    const auto& buckets = buckets_of(uses_[use]);
    return std::find(buckets.begin(), buckets.end(), bucket) != buckets.end();
  }

  void gather(size_t use) {
    for (int bucket : buckets_of(uses_[use]))
      if (!whole_[bucket]) {
        whole_[bucket] = true;
        list_.gather(bucket, uses_[use].round);
      }
  }

  void compute(const Use& use) {
    const bool mine = list_.has_slice(use.round);
    if (mine && !use.backward) list_.forward(use.block, use.round);
    if (mine && use.backward) list_.backward(use.block, use.round);
    const bool last_round = use.round + 1 == list_.plan().rounds;
    if (!use.backward && use.block + 1 == list_.end() && last_round)
      list_.reduce_loss();
    if (!use.backward) return;
    for (int bucket : buckets_of(use))
      if (list_.last_to_add(bucket) == use.block &&
          list_.plan().schedule.buckets[bucket].trained)
        reduce(bucket, use.round, last_round);
  }

  void reduce(int bucket, int round, bool last) {
    if (last && list_.may_update_at_once())
      list_.reduce_update(bucket, round);
    else
      list_.reduce_scatter(bucket, round);
  }

  // What the next use needs stays: the backward of the last block follows its forward.
  void drop(size_t use) {
    for (int bucket : buckets_of(uses_[use])) {
      if (use + 1 < uses_.size() && needs(use + 1, bucket)) continue;
      list_.free_parameters(bucket, uses_[use].round);
      whole_[bucket] = false;
    }
  }

  ListWriter& list_;
  std::vector<Use> uses_;
  std::vector<bool> whole_;  // by bucket
};

}  // namespace

void write_sharded_parameters(ListWriter& list) { ShardedList(list).write(); }

}  // namespace cohort
