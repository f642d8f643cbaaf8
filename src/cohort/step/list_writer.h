// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <span>
#include <vector>

#include "cohort/step/declare.h"
#include "cohort/step/generator.h"
#include "cohort/step/generators/turns.h"
#include "cohort/step/schedule.h"

namespace cohort {

// What every generator reads. `schedule` has its groups and buckets, but no roles yet.
struct StepPlan {
  std::span<const BlockSpec> blocks;
  const Schedule& schedule;
  const GeneratorOptions& options;
  std::vector<std::vector<int>> uses;  // buckets, by block
  int rounds = 1;                      // slices of the rank that has most

  int all_lane = kComputeLane;  // for all ranks; kComputeLane: nobody to talk to
  int dp_lane = kComputeLane;
  int shard_lane = kComputeLane;
  int gather_lane = kComputeLane;  // for parameters: shard_lane, or a copy
  int replicate_lane = kComputeLane;
  int copy_lane = kComputeLane;
  std::vector<int> tied_lanes = {};  // by bucket; kNone: one place has it
  // The first lane of links: some for outputs, some for gradients, and one for sums of
  // gradients from each place, where they are mirrored.
  int first_link = kNone;

  int places() const { return schedule.mesh.size(Axis::kPipe); }
  // Links of a kind: from each place to its neighbour. With several stages at a place,
  // the last place and the first one are neighbours, too.
  int links() const {
    return static_cast<int>(schedule.stages.size()) > places() ? places()
                                                               : places() - 1;
  }
  int act_link(int from) const { return first_link + from; }
  int grad_link(int from) const {
    return first_link + links() + (from + places() - 1) % places();
  }
  int mirror_link(int from) const { return first_link + 2 * links() + from; }
};

// The list of actions of one role, written one after another. Generators say in which
// order; the writer knows what each action reads, writes and moves.
class ListWriter {
 public:
  ListWriter(const StepPlan& plan, int place, int slices);

  const StepPlan& plan() const { return plan_; }
  int place() const { return place_; }
  // What is computed here, in its order.
  std::vector<Turn> turns() const;
  // The blocks of a turn, in the order in which they are computed.
  std::vector<int> blocks_of(const Turn& turn) const;
  int buckets() const { return static_cast<int>(plan_.schedule.buckets.size()); }

  // One slice of one block, if this rank has that slice: with its recompute, where the
  // options ask for it, and its transfers, where its stage begins or ends.
  void compute(ActionKind kind, int block, int slice);

  // Whether its parameters are computed with here.
  bool is_here(int bucket) const;
  // Whether other places update it, too, with the sum of all gradients.
  bool is_spread(int bucket) const { return plan_.tied_lanes[bucket] != kNone; }

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

  // The block of this place whose backward is the last to add to a bucket's gradient.
  int last_to_add(int bucket) const { return last_to_add_[bucket]; }

  std::vector<Action> take() { return std::move(actions_); }

 private:
  void add(Action action);
  void forward(int block, int slice);
  void backward(ActionKind kind, int block, int slice);
  void run_block(ActionKind kind, int block, int slice);
  std::vector<InnerCall> calls_in(ActionKind kind, int block) const;
  void transfer(ActionKind kind, What what, int block, int slice, int lane);
  void exchange_mirrors();
  void hand_on_parts();
  bool is_mirrored_here(int bucket) const;
  bool mirrors_along(Axis axis) const;
  int64_t activation_bytes(const Action& action, const Access& access) const;
  // Hands the sum of a shard to the next rank. One bucket late, so that no rank waits
  // for its reduction while there is backward to compute.
  void mirror(int bucket);
  // Sums of what several places use, over those places.
  void sum_tied();
  void fold_buffers();
  bool has_statistics() const;
  bool has_norm() const;
  int64_t shard(int bucket) const;

  const StepPlan& plan_;
  int place_, slices_;
  std::vector<int> last_to_add_;  // by bucket
  std::set<int> borders_;         // first blocks of stages, but for the first stage
  std::vector<Action> actions_;
  Declarer declarer_;
  int next_to_mirror_ = kNone;  // the bucket whose sum is on its way
  std::vector<bool> updated_;   // by bucket
  bool has_summed_tied_ = false;
};

}  // namespace cohort
