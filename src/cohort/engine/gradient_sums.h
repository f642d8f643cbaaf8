// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cohort/comm/peer_memory.h"
#include "cohort/communicator.h"
#include "cohort/engine/flat_state.h"
#include "cohort/engine/group_slices.h"
#include "cohort/engine/pending_work.h"
#include "cohort/engine/rank_groups.h"
#include "cohort/engine/stretch_seal.h"
#include "cohort/engine/sum.h"
#include "cohort/step/schedule.h"

namespace cohort {

// Where gradients are born, how those of several slices are added up, and how they are
// summed over the ranks.
//
// Up to shard level 1 a rank adds up its slices itself; from level 2 on each slice is
// summed over the ranks at once, and only shards are kept. In an exact run both follow
// one tree over all slices of the batch, and nobody else's order of adding.
class GradientSums {
 public:
  // Called with the final sum of a stretch of this rank's shard, hot in cache, instead
  // of keeping it: `begin` counts from the start of the bucket.
  using Visitor =
      std::function<void(int bucket, int64_t begin, int64_t count, float* sum)>;

  struct Options {
    bool visits = false;  // sums go to a Visitor and are not kept; if can_visit()
    // In exact, elastic runs each reader of a gradient looks whether it has changed.
    bool seals = false;
  };
  // Collective.
  GradientSums(const Schedule& schedule, const FlatState& state,
               const RankGroups& groups, Options options);

  // True if a Visitor may be used: ranks can reach each other's memory, and the sum
  // over the shard group is the final one.
  static bool can_visit(const RankGroups& groups);

  void begin_step();
  // Memory of a whole bucket for the gradients of the slice at hand, and whether they
  // are added to what is there.
  struct Leaf {
    Tensor memory;
    bool adds = false;
  };
  Leaf leaf(int bucket, int slice, int use = 0) const;
  // In an exact run blocks that share a parameter have a sum over slices each, and
  // these are added last. Which one is a block's.
  bool keeps_apart(int bucket) const { return uses_[bucket].size() > 1; }
  int use_of(int bucket, int block) const;
  // With seals: a gradient, or part of it, is in its leaf; more is about to be added.
  void close_born(int place, int slice, int use = 0);
  void open_born(int place, int slice, int use = 0);
  // Every gradient of that slice is in its leaf.
  void finish_slice(int bucket, int slice, int use = 0);

  // Starts the sum over ranks; from level 2 on of that slice, else of all (kNone).
  PendingWork reduce(int bucket, int slice, const Visitor* visitor);
  // Starts the sum, over the replicas, of what the shard groups have summed; in hybrid
  // runs.
  PendingWork reduce_replicas(int bucket);
  // Adds up sums at the places that have a tied bucket, in the order of their ranks.
  void reduce_tied(int bucket, Communicator& places, std::span<const int> order);
  // Hands on the sum of the shard, or of parts, and takes that of the rank before.
  PendingWork mirror(int bucket, Communicator& world);
  const Tensor& mirrored_sum(int bucket) const { return buckets_[bucket].mirrored; }
  // Along a pipeline it comes from elsewhere, into that memory.
  void take_mirrored(int bucket);

  // The sum, once it is there: of the whole bucket at level 0, else of the shard.
  const Tensor& sum(int bucket) const;

  bool seals() const { return seals_; }
  // Whose memory of gradients has changed by itself, as words for a line; empty: nobody
  // saw any in this step. broken_sum() looks again at sum() and mirrored_sum().
  const std::string& broken() const { return broken_; }
  std::string broken_sum(int bucket) const;
  // For tests: all memory of a bucket's gradients, and that of one of its values.
  std::vector<Tensor> memory(int bucket) const;
  std::vector<Tensor> memory_of(const Value& value) const;

  // Which rank's gradient of that element is not finite; none if that is not known.
  std::optional<int> blame(int bucket, int64_t element) const;

 private:
  // By member, then by buffer.
  using Buffers = std::vector<std::vector<Tensor>>;
  using Seals = std::vector<std::vector<StretchSeal>>;

  struct BucketSums {
    int bucket = 0;
    Tensor leaf;               // in the dtype of computation
    std::vector<Tensor> sums;  // partial sums of slices, up to level 1
    ExactTree tree{1};
    int slot = kNone;  // its slot in the ring, from level 2 on
    Tensor shard;      // the sum over ranks of this rank's shard
    Tensor mirrored;   // that of the rank before, where shards are kept twice
    Buffers stacks;    // sums of each member's slices (exact)
    Tensor partials;   // the shard group's (exact hybrid)
    Buffers peers;     // what the others have for us to read

    std::vector<StretchSeal> sum_seals;
    Seals stack_seals, peer_seals;
    StretchSeal partials_seal, shard_seal, mirrored_seal;
  };
  // Leaves of slices that take turns, from level 2 on; all by slot.
  struct Ring {
    std::vector<Tensor> slots;
    Buffers peers;  // and by rank
    std::vector<StretchSeal> seals;
    Seals peer_seals;  // and by rank
  };
  using Pointers = std::vector<const float*>;

  void make_folds();
  void allocate(const Schedule& schedule, int number, int use, bool visits);
  void allocate_mirror(const Schedule& schedule, int bucket);
  void map_peers();
  void make_seals();
  StretchSeal seal_here(const Tensor& buffer, int64_t shard) const;
  void look(bool holds, int member);
  uint64_t hash_of_born(int place, int slice, int use) const;
  void make_uses(const Schedule& schedule, int place);
  void add_uses(int bucket);
  void close_sum(BucketSums& sums);
  const BucketState& state_of(int number) const;
  PendingWork reduce_use(int number, int slice, const Visitor* visitor);
  void fold_replicas(int number);
  int64_t shard_count(int bucket) const;
  bool in_rounds() const { return level_ >= 2; }

  PendingWork work_jointly(int bucket, int slice, const Visitor* visitor);
  void work_on_shard(int bucket, int slice, const Visitor* visitor);
  void add_round(int bucket, int round, int64_t at, int64_t count, float* out);
  void push_round(int bucket, int round, int64_t at, int64_t count,
                  const std::vector<const void*>& leaves);
  void fold_stacks(int bucket, int64_t at, int64_t count, float* out);
  void push_slice(BucketSums& sums, int top, int merges) const;
  Pointers pointers(const Buffers& buffers, int64_t at) const;
  void fold_group(BucketSums& sums, const Pointers& inputs, int64_t at, int64_t count,
                  float* out);
  void fold_group(BucketSums& sums, const std::vector<Tensor>& inputs,
                  const Tensor& out);
  void push_received(int bucket, int round, const std::vector<Tensor>& leaves);
  void keep(BucketSums& sums, int64_t at, int64_t count, const float* sum);
  const Tensor& own_sum(const BucketSums& sums) const;

  PendingWork reduce_scatter(int bucket, int slice);
  PendingWork reduce_whole(int bucket);
  void exchange_leaves(int bucket, int round);
  void exchange_partials(int bucket);

  bool meets_;  // others, or itself
  int level_;
  bool seals_;
  bool exact_;
  const GroupSlices slices_;  // those of the shard group's members
  Precision precision_;
  const FlatState& state_;
  const StateHome& home_;
  Communicator* dp_;
  Communicator* shard_;
  Communicator* replicate_;
  PeerMemory* peers_ = nullptr;
  // Buckets, then uses that are kept apart; functions take either's number.
  std::vector<BucketSums> buckets_;
  std::vector<std::vector<int>> uses_;    // by bucket: numbers, itself first
  std::vector<std::vector<int>> blocks_;  // by bucket that has several: of each
  Ring ring_;
  std::unique_ptr<TreeFold> fold_;
  std::vector<size_t> group_partials_;  // by shard group (exact hybrid)
  std::unique_ptr<TreeFold> fold_replicas_;
  Visitor write_everywhere_;
  std::vector<float> scratch_;
  std::map<std::pair<int, int>, uint64_t> born_;  // hashes, by place and use
  std::string broken_;
};

}  // namespace cohort
