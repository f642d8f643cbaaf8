// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "cohort/step/declare.h"
#include "cohort/step/generator.h"
#include "cohort/step/schedule.h"

namespace cohort {

// What every generator reads. `schedule` has its groups and buckets, but no roles yet.
struct StepPlan {
  std::span<const BlockSpec> blocks;
  const Schedule& schedule;
  const GeneratorOptions& options;
  std::vector<std::vector<int>> uses;  // buckets, by block
  std::vector<int> last_to_add;        // by bucket: block
  int rounds = 1;                      // slices of the rank that has most

  int all_lane = kComputeLane;  // of all ranks; kComputeLane: nobody to talk to
  int dp_lane = kComputeLane;
  int shard_lane = kComputeLane;
  int gather_lane = kComputeLane;  // of parameters: shard_lane, or a copy
  int replicate_lane = kComputeLane;
  int copy_lane = kComputeLane;
  // The first lane of links: one for outputs from each place but the last, one for
  // gradients from each but the first, and one for sums of gradients from each, where
  // they are mirrored.
  int first_link = kNone;

  int places() const { return schedule.mesh.size(Axis::kPipe); }
  int act_link(int from) const { return first_link + from; }
  int grad_link(int from) const { return first_link + places() - 1 + from - 1; }
  int mirror_link(int from) const { return first_link + 2 * (places() - 1) + from; }
};

// The list of actions of one role, written one after another. Generators say in which
// order; the writer knows what each action reads, writes and moves.
class ListWriter {
 public:
  ListWriter(const StepPlan& plan, int place, int slices);

  const StepPlan& plan() const { return plan_; }
  int place() const { return place_; }
  // The blocks that are computed here: [begin, end).
  int begin() const { return begin_; }
  int end() const { return end_; }
  int buckets() const { return static_cast<int>(plan_.schedule.buckets.size()); }
  bool has_slice(int round) const { return round < slices_; }

  // Forward and backward of one slice of one block, with its recompute where the
  // options ask for it.
  // Where the stage begins or ends within the chain, values cross a link.
  void forward(int block, int slice);
  void backward(int block, int slice);

  // Whether its parameters are computed with here.
  bool is_here(int bucket) const;

  // Sums the loss over all ranks; before the first update.
  void reduce_loss();

  // Sums the gradients of a bucket over all ranks, or leaves each rank its shard of the
  // sum. `slice`: only that one's gradients; kNone: those of all.
  void reduce(int bucket);
  void reduce_scatter(int bucket, int slice);
  // Where ranks reach each other's memory, and nothing is to be known of all gradients
  // first: the sum and the update in one.
  bool may_update_at_once() const;
  void reduce_update(int bucket, int slice);

  // Makes a bucket's parameters whole, and drops them again.
  void gather(int bucket, int slice);
  void free_parameters(int bucket, int slice);

  // The update of a bucket, after its gradient is summed and the step voted on; and,
  // where parameters are whole but updated in shards, the gather that follows.
  void update(int bucket);
  bool may_overlap_updates() const;
  // Norm, Vote and the updates that are not written yet.
  void finish_updates();
  void commit();

  // The block whose backward is the last to add to a bucket's gradient.
  int last_to_add(int bucket) const { return plan_.last_to_add[bucket]; }

  std::vector<Action> take() { return std::move(actions_); }

 private:
  void add(Action action);
  void compute(ActionKind kind, int block, int slice);
  std::vector<InnerCall> calls_in(ActionKind kind, int block) const;
  void transfer(ActionKind kind, What what, int block, int slice, int lane);
  void exchange_mirrors();
  bool is_mirrored_here(int bucket) const;
  bool mirrors_along_pipe() const;
  int64_t activation_bytes(const Action& action, const Access& access) const;
  // Hands the sum of a share to the next rank. One bucket late, so that no rank waits
  // for its reduction while there is backward to compute.
  void mirror(int bucket);
  void fold_buffers();
  bool has_statistics() const;
  bool has_norm() const;
  int64_t share(int bucket) const;

  const StepPlan& plan_;
  int place_, slices_;
  int begin_ = 0, end_ = 0;
  std::vector<Action> actions_;
  Declarer declarer_;
  int next_to_mirror_ = kNone;  // the bucket whose sum is on its way
  std::vector<bool> updated_;   // by bucket
};

}  // namespace cohort
