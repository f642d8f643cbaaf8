// SPDX-License-Identifier: Apache-2.0
// Shard level 3: parameters too are cut over the ranks. A block's are gathered before
// it needs them, a few uses ahead, and dropped when it is done.
#include <algorithm>
#include <span>
#include <vector>

#include "cohort/step/generators/composers.h"

namespace cohort {
namespace {

// One block, in a turn of its stage.
struct Use {
  ActionKind kind;
  int block;
  int round;
};

std::vector<Use> uses_of(const ListWriter& list) {
  std::vector<Use> uses;
  for (const Turn& turn : list.turns())
    for (const int b : list.blocks_of(turn)) uses.push_back({turn.kind, b, turn.round});
  return uses;
}

// By its place in the list.
size_t last_forward(const std::vector<Use>& uses) {
  size_t last = 0;
  for (size_t i = 0; i < uses.size(); ++i)
    if (uses[i].kind == ActionKind::kForward) last = i;
  return last;
}

class ShardedList {
 public:
  explicit ShardedList(ListWriter& list)
      : list_(list),
        uses_(uses_of(list)),
        last_forward_(last_forward(uses_)),
        whole_(list.buckets(), false) {}

  void write() {
    for (size_t i = 0; i < uses_.size(); ++i) {
      const size_t ahead = std::min(
          uses_.size() - 1, i + static_cast<size_t>(list_.plan().options.prefetch));
      for (size_t j = i; j <= ahead; ++j) gather(j);
      compute(i);
      drop(i);
    }
    list_.finish_updates();
    list_.commit();
  }

 private:
  // Gradients of weights are made of what BackwardInput has left, without parameters.
  std::span<const int> gathered_for(const Use& use) const {
    if (use.kind == ActionKind::kBackwardWeight) return {};
    return list_.plan().uses[use.block];
  }

  bool needs(size_t use, int bucket) const {
    const auto buckets = gathered_for(uses_[use]);
    return std::find(buckets.begin(), buckets.end(), bucket) != buckets.end();
  }

  void gather(size_t use) {
    for (int bucket : gathered_for(uses_[use]))
      if (!whole_[bucket]) {
        whole_[bucket] = true;
        list_.gather(bucket, uses_[use].round);
      }
  }

  void compute(size_t index) {
    const Use& use = uses_[index];
    list_.compute(use.kind, use.block, use.round);
    if (index == last_forward_) list_.reduce_loss();
    if (!completes_gradients(use.kind)) return;
    for (int bucket : list_.plan().uses[use.block])
      if (list_.last_to_add(bucket) == use.block &&
          list_.plan().schedule.buckets[bucket].trained)
        reduce(bucket, use.round);
  }

  void reduce(int bucket, int round) {
    const bool last = round + 1 == list_.plan().rounds;
    if (last && list_.may_update_at_once())
      list_.reduce_update(bucket, round);
    else
      list_.reduce_scatter(bucket, round);
  }

  // What the next use needs stays: the backward of the last block follows its forward.
  void drop(size_t use) {
    for (int bucket : gathered_for(uses_[use])) {
      if (use + 1 < uses_.size() && needs(use + 1, bucket)) continue;
      list_.free_parameters(bucket, uses_[use].round);
      whole_[bucket] = false;
    }
  }

  ListWriter& list_;
  std::vector<Use> uses_;
  size_t last_forward_;
  std::vector<bool> whole_;  // by bucket
};

}  // namespace

void write_sharded_parameters(ListWriter& list) { ShardedList(list).write(); }

}  // namespace cohort
