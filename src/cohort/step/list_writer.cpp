// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/list_writer.h"

#include <algorithm>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/step/buckets.h"
#include "cohort/step/buffers.h"
#include "cohort/step/derive.h"

namespace cohort {
namespace {

ListFacts facts_of(const StepPlan& plan) {
  ListFacts facts{.blocks = static_cast<int>(plan.blocks.size()),
                  .forward_only = plan.options.forward_only};
  const bool turns = plan.schedule.shard >= 2 && plan.shard_lane != kComputeLane;
  for (int b = 0; b < facts.blocks; ++b)
    if (plan.blocks[b].keeps_statistics) facts.statistics.insert(b);
  for (int i = 0; i < static_cast<int>(plan.schedule.buckets.size()); ++i) {
    if (plan.schedule.shard == 3) facts.cut.insert(i);
    if (!plan.schedule.buckets[i].trained) continue;
    facts.trained.insert(i);
    if (turns) facts.turns.insert(i);
  }
  return facts;
}

}  // namespace

ListWriter::ListWriter(const StepPlan& plan, int slices)
    : plan_(plan),
      slices_(slices),
      declarer_(facts_of(plan)),
      updated_(plan.schedule.buckets.size(), false),
      has_memory_(plan.schedule.buckets.size(), false),
      slot_used_(static_cast<size_t>(plan.slots), false) {}

int ListWriter::add(Action action) {
  declarer_.declare(action);
  actions_.push_back(std::move(action));
  return static_cast<int>(actions_.size()) - 1;
}

std::vector<Action> ListWriter::take() {
  assign_buffers(plan_.schedule, actions_);
  derive_waits(actions_, plan_.schedule.lanes());
  return std::move(actions_);
}

void ListWriter::forward(int block, int slice) {
  const BlockSpec& spec = plan_.blocks[block];
  const bool forward_only = plan_.options.forward_only;
  const bool keeps = !forward_only && !plan_.options.recompute.has(block);
  const bool first = block == 0, last = block + 1 == blocks();
  add({.kind = ActionKind::kForward,
       .block = block,
       .slice = slice,
       .buckets = plan_.uses[block],
       .takes = keeps ? spec.activation_bytes : spec.output_bytes,
       .frees = (forward_only && !first ? plan_.blocks[block - 1].output_bytes : 0) +
                (forward_only && last ? spec.output_bytes : 0),
       .scratch = spec.scratch_bytes});
}

void ListWriter::backward(int block, int slice) {
  const BlockSpec& spec = plan_.blocks[block];
  int64_t held = spec.activation_bytes;
  if (plan_.options.recompute.has(block)) {
    held += spec.output_bytes;
    add({.kind = ActionKind::kRecompute,
         .block = block,
         .slice = slice,
         .buckets = plan_.uses[block],
         .takes = spec.activation_bytes,
         .scratch = spec.scratch_bytes});
  }
  Action action{.kind = ActionKind::kBackward,
                .block = block,
                .slice = slice,
                .buckets = plan_.uses[block],
                .frees = held,
                .scratch = spec.scratch_bytes};
  for (const int bucket : action.buckets)
    if (plan_.schedule.buckets[bucket].trained && takes_turns())
      take_gradient(action, bucket);
  add(std::move(action));
}

// From level 2 on a gradient has memory only from the first backward that adds to it
// until its reduction: gradients take turns in pieces, each of which stays to the end
// of the last reduction.
void ListWriter::take_gradient(Action& action, int bucket) {
  if (has_memory_[bucket]) return;
  has_memory_[bucket] = true;
  const int slot = plan_.schedule.buckets[bucket].slot;
  if (slot_used_[slot]) return;
  slot_used_[slot] = true;
  action.takes += gradient_of(bucket);
  gradients_taken_ += gradient_of(bucket);
}

void ListWriter::reduce_loss() {
  if (plan_.dp_lane == kComputeLane) return;
  add({.kind = ActionKind::kReduce,
       .lane = plan_.dp_lane,
       .buckets = {kLossBucket},
       .bytes = kLossBytes});
}

void ListWriter::reduce(int bucket) {
  if (plan_.dp_lane == kComputeLane) return;
  const Bucket& what = plan_.schedule.buckets[bucket];
  add({.kind = ActionKind::kReduce,
       .lane = plan_.dp_lane,
       .buckets = {bucket},
       .bytes = what.numel * size_of(plan_.schedule.precision.reduce)});
}

void ListWriter::reduce_scatter(int bucket, int slice) {
  if (plan_.shard_lane == kComputeLane) return;
  const Bucket& what = plan_.schedule.buckets[bucket];
  const int64_t width = size_of(plan_.schedule.precision.reduce);
  Action action{.kind = ActionKind::kReduceScatter,
                .lane = plan_.shard_lane,
                .slice = slice,
                .buckets = {bucket},
                .bytes = what.numel * width};
  if (takes_turns()) take_gradient(action, bucket);
  if (last_reduction_ != kNone) actions_[last_reduction_].frees = 0;
  action.frees = gradients_taken_;
  has_memory_[bucket] = false;
  last_reduction_ = add(std::move(action));
  if (slice != kNone && slice + 1 != plan_.rounds) return;
  mirror(std::exchange(next_to_mirror_, bucket));
  if (plan_.replicate_lane == kComputeLane) return;
  add({.kind = ActionKind::kReduce,
       .lane = plan_.replicate_lane,
       .buckets = {bucket},
       .bytes = share(bucket) * width});
}

void ListWriter::mirror(int bucket) {
  if (bucket == kNone || !has_mirrors(plan_.schedule)) return;
  add({.kind = ActionKind::kMirror,
       .lane = plan_.shard_lane,
       .buckets = {bucket},
       .bytes = share(bucket) * size_of(sum_type(plan_.schedule))});
}

void ListWriter::gather(int bucket, int slice) {
  const int64_t width = size_of(plan_.schedule.precision.compute);
  const int64_t gathered = gathered_bytes(plan_.schedule, bucket);
  // Of whole parameters that were updated in shares a copy of the share travels, unless
  // the reduction has written it everywhere.
  const int64_t copy = plan_.schedule.keeps_sums ? share(bucket) * width : 0;
  add({.kind = ActionKind::kGather,
       .lane = plan_.gather_lane,
       .slice = slice,
       .buckets = {bucket},
       .bytes = plan_.schedule.buckets[bucket].numel * width,
       .takes = is_cut() ? gathered : copy,
       .frees = is_cut() ? 0 : copy});
}

void ListWriter::free_parameters(int bucket, int slice) {
  add({.kind = ActionKind::kFree,
       .slice = slice,
       .buckets = {bucket},
       .frees = gathered_bytes(plan_.schedule, bucket)});
}

bool ListWriter::may_overlap_updates() const {
  return plan_.options.overlap_updates && !plan_.options.clip && !plan_.options.vote;
}

void ListWriter::update(int bucket) {
  if (updated_[bucket] || !plan_.schedule.buckets[bucket].trained) return;
  updated_[bucket] = true;
  if (plan_.options.offload) offload(bucket);
  add({.kind = ActionKind::kUpdate,
       .buckets = {bucket},
       .bytes = (has_mirrors(plan_.schedule) ? 2 : 1) * share(bucket) *
                size_of(at::kFloat)});
  if (plan_.options.offload) fetch(bucket);
  const int level = plan_.schedule.shard;
  if ((level == 1 || level == 2) && plan_.shard_lane != kComputeLane)
    gather(bucket, kNone);
}

void ListWriter::offload(int bucket) {
  add({.kind = ActionKind::kOffload,
       .lane = plan_.copy_lane,
       .buckets = {bucket},
       .bytes = share(bucket) * size_of(plan_.schedule.precision.reduce)});
}

void ListWriter::fetch(int bucket) {
  add({.kind = ActionKind::kFetch,
       .lane = plan_.copy_lane,
       .buckets = {bucket},
       .bytes = share(bucket) * size_of(plan_.schedule.precision.compute)});
}

void ListWriter::finish_updates() {
  mirror(std::exchange(next_to_mirror_, kNone));
  if (plan_.options.clip) add({.kind = ActionKind::kNorm, .lane = plan_.dp_lane});
  if (plan_.options.elastic) fold_buffers();
  if (plan_.options.vote)
    add({.kind = ActionKind::kVote, .lane = plan_.dp_lane, .bytes = 8});
  for (int i = 0; i < buckets(); ++i) update(i);
}

bool ListWriter::has_statistics() const {
  return !plan_.options.forward_only &&
         std::any_of(plan_.blocks.begin(), plan_.blocks.end(),
                     [](const BlockSpec& block) { return block.keeps_statistics; });
}

void ListWriter::fold_buffers() {
  if (has_statistics()) add({.kind = ActionKind::kFoldBuffers, .lane = plan_.dp_lane});
}

void ListWriter::commit() {
  Action commit{.kind = ActionKind::kCommit};
  if (plan_.options.clip) commit.needs.push_back(ActionKind::kNorm);
  if (plan_.options.vote) commit.needs.push_back(ActionKind::kVote);
  if (has_statistics()) commit.needs.push_back(ActionKind::kFoldBuffers);
  if (!plan_.options.elastic) fold_buffers();
  for (const auto& bucket : plan_.schedule.buckets) {
    const int states = plan_.options.optimizer_states;
    commit.takes += state_bytes(plan_.schedule, bucket, states) +
                    mirror_bytes(plan_.schedule, bucket, states);
    if (bucket.trained && !takes_turns())
      commit.takes += gradient_bytes(plan_.schedule, bucket);
  }
  for (int i = 0; i < buckets() && !plan_.options.forward_only; ++i)
    if (plan_.schedule.buckets[i].trained) commit.buckets.push_back(i);
  if (has_mirrors(plan_.schedule) && !commit.buckets.empty())
    commit.needs.push_back(ActionKind::kMirror);
  add(std::move(commit));
}

int64_t ListWriter::share(int bucket) const {
  const int64_t numel = plan_.schedule.buckets[bucket].numel;
  if (plan_.schedule.shard == 0 || plan_.shard_lane == kComputeLane) return numel;
  return numel / plan_.schedule.mesh.size(Axis::kCut);
}

int64_t ListWriter::gradient_of(int bucket) const {
  return gradient_bytes(plan_.schedule, plan_.schedule.buckets[bucket]);
}

}  // namespace cohort
