// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/list_writer.h"

#include <algorithm>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/step/buckets.h"

namespace cohort {
namespace {

void drop_none(std::vector<int>& waits) {
  std::erase_if(waits, [](int wait) { return wait < 0; });  // nothing came before
  std::sort(waits.begin(), waits.end());
  waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
}

}  // namespace

ListWriter::ListWriter(const StepPlan& plan, int slices)
    : plan_(plan),
      slices_(slices),
      reduced_(plan.schedule.buckets.size(), kNone),
      updated_(plan.schedule.buckets.size(), false),
      has_memory_(plan.schedule.buckets.size(), false),
      last_on_slot_(static_cast<size_t>(plan.slots), kNone) {}

int ListWriter::add(Action action) {
  drop_none(action.waits);
  actions_.push_back(std::move(action));
  return last_action();
}

void ListWriter::forward(int block, int slice, std::vector<int> waits) {
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
       .scratch = spec.scratch_bytes,
       .waits = std::move(waits)});
}

void ListWriter::backward(int block, int slice, std::vector<int> waits) {
  const BlockSpec& spec = plan_.blocks[block];
  int64_t held = spec.activation_bytes;
  if (plan_.options.recompute.has(block)) {
    held += spec.output_bytes;
    add({.kind = ActionKind::kRecompute,
         .block = block,
         .slice = slice,
         .buckets = plan_.uses[block],
         .takes = spec.activation_bytes,
         .scratch = spec.scratch_bytes,
         .waits = std::exchange(waits, {})});
  }
  Action action{.kind = ActionKind::kBackward,
                .block = block,
                .slice = slice,
                .buckets = plan_.uses[block],
                .frees = held,
                .scratch = spec.scratch_bytes,
                .waits = std::move(waits)};
  take_gradient(action);
  add(std::move(action));
}

// From level 2 on a gradient has memory only from the first backward that adds to it
// until its reduction: gradients take turns in pieces, each of which stays to the end
// of the last reduction.
void ListWriter::take_gradient(Action& action) {
  if (plan_.schedule.shard < 2 || plan_.shard_lane == kComputeLane) return;
  for (int bucket : action.buckets) {
    if (has_memory_[bucket] || !plan_.schedule.buckets[bucket].trained) continue;
    has_memory_[bucket] = true;
    const int last = last_on_slot_[plan_.schedule.buckets[bucket].slot];
    if (last == kNone) {
      action.takes += gradient_of(bucket);
      gradients_taken_ += gradient_of(bucket);
    }
    action.waits.push_back(last);
  }
}

void ListWriter::reduce_loss() {
  loss_known_ = last_action();
  if (plan_.dp_lane == kComputeLane) return;
  loss_known_ = add({.kind = ActionKind::kReduce,
                     .lane = plan_.dp_lane,
                     .buckets = {kLossBucket},
                     .bytes = kLossBytes,
                     .waits = {last_action()}});
}

void ListWriter::reduce(int bucket) {
  reduced_[bucket] = last_action();
  if (plan_.dp_lane == kComputeLane) return;
  const Bucket& what = plan_.schedule.buckets[bucket];
  reduced_[bucket] =
      add({.kind = ActionKind::kReduce,
           .lane = plan_.dp_lane,
           .buckets = {bucket},
           .bytes = what.numel * size_of(plan_.schedule.precision.reduce),
           .waits = {last_action()}});
}

void ListWriter::reduce_scatter(int bucket, int slice) {
  reduced_[bucket] = last_action();
  if (plan_.shard_lane == kComputeLane) return;
  const Bucket& what = plan_.schedule.buckets[bucket];
  const int64_t width = size_of(plan_.schedule.precision.reduce);
  Action action{.kind = ActionKind::kReduceScatter,
                .lane = plan_.shard_lane,
                .slice = slice,
                .buckets = {bucket},
                .bytes = what.numel * width,
                .waits = {last_action()}};
  take_gradient(action);
  if (last_reduction_ != kNone) actions_[last_reduction_].frees = 0;
  action.frees = gradients_taken_;
  has_memory_[bucket] = false;
  reduced_[bucket] = last_reduction_ = add(std::move(action));
  if (plan_.schedule.shard >= 2) last_on_slot_[what.slot] = reduced_[bucket];
  if (slice != kNone && slice + 1 != plan_.rounds) return;
  mirror(std::exchange(next_to_mirror_, bucket));
  if (plan_.replicate_lane == kComputeLane) return;
  reduced_[bucket] = add({.kind = ActionKind::kReduce,
                          .lane = plan_.replicate_lane,
                          .buckets = {bucket},
                          .bytes = share(bucket) * width,
                          .waits = {reduced_[bucket]}});
}

void ListWriter::mirror(int bucket) {
  if (bucket == kNone || !has_mirrors(plan_.schedule)) return;
  reduced_[bucket] = add({.kind = ActionKind::kMirror,
                          .lane = plan_.shard_lane,
                          .buckets = {bucket},
                          .bytes = share(bucket) * size_of(sum_type(plan_.schedule)),
                          .waits = {reduced_[bucket]}});
}

int ListWriter::gather(int bucket, int slice, std::vector<int> waits) {
  const int64_t width = size_of(plan_.schedule.precision.compute);
  const int64_t bytes = plan_.schedule.buckets[bucket].numel * width;
  // Of whole parameters that were updated in shares a copy of the share travels, unless
  // the reduction has written it everywhere.
  const int64_t copy = plan_.schedule.keeps_sums ? share(bucket) * width : 0;
  const bool cut = plan_.schedule.shard == 3;
  const int64_t gathered = gathered_bytes(plan_.schedule, bucket);
  return add({.kind = ActionKind::kGather,
              .lane = plan_.gather_lane,
              .slice = slice,
              .buckets = {bucket},
              .bytes = bytes,
              .takes = cut ? gathered : copy,
              .frees = cut ? 0 : copy,
              .waits = std::move(waits)});
}

void ListWriter::free_parameters(int bucket, int slice, int gathered) {
  add({.kind = ActionKind::kFree,
       .slice = slice,
       .buckets = {bucket},
       .frees = gathered_bytes(plan_.schedule, bucket),
       .waits = {gathered}});
}

bool ListWriter::may_overlap_updates() const {
  return plan_.options.overlap_updates && !plan_.options.clip && !plan_.options.vote;
}

void ListWriter::update(int bucket) {
  if (updated_[bucket] || !plan_.schedule.buckets[bucket].trained) return;
  updated_[bucket] = true;
  const int copy_lane = 1 + static_cast<int>(plan_.schedule.groups.size());
  int ready = reduced_[bucket];
  if (plan_.options.offload)
    ready = add({.kind = ActionKind::kOffload,
                 .lane = copy_lane,
                 .buckets = {bucket},
                 .bytes = share(bucket) * size_of(plan_.schedule.precision.reduce),
                 .waits = {ready}});
  int done = add({.kind = ActionKind::kUpdate,
                  .buckets = {bucket},
                  .bytes = (has_mirrors(plan_.schedule) ? 2 : 1) * share(bucket) *
                           size_of(at::kFloat),
                  .waits = {loss_known_, ready, voted_}});
  if (plan_.options.offload)
    done = add({.kind = ActionKind::kFetch,
                .lane = copy_lane,
                .buckets = {bucket},
                .bytes = share(bucket) * size_of(plan_.schedule.precision.compute),
                .waits = {done}});
  const int level = plan_.schedule.shard;
  if ((level == 1 || level == 2) && plan_.shard_lane != kComputeLane)
    gather(bucket, kNone, {done});
}

void ListWriter::finish_updates() {
  mirror(std::exchange(next_to_mirror_, kNone));
  std::vector<int> reduced = reduced_;
  reduced.push_back(loss_known_);
  if (plan_.options.clip)
    voted_ = add({.kind = ActionKind::kNorm,
                  .lane = plan_.dp_lane,
                  .waits = std::exchange(reduced, {})});
  if (plan_.options.vote) {
    reduced.push_back(voted_);
    if (plan_.options.elastic) reduced.push_back(fold_buffers());
    voted_ = add({.kind = ActionKind::kVote,
                  .lane = plan_.dp_lane,
                  .bytes = 8,
                  .waits = std::move(reduced)});
  }
  for (int i = 0; i < buckets(); ++i) update(i);
}

bool ListWriter::has_statistics() const {
  return !plan_.options.forward_only &&
         std::any_of(plan_.blocks.begin(), plan_.blocks.end(),
                     [](const BlockSpec& block) { return block.keeps_statistics; });
}

int ListWriter::fold_buffers() {
  if (!has_statistics()) return kNone;
  return add({.kind = ActionKind::kFoldBuffers,
              .lane = plan_.dp_lane,
              .waits = {last_action()}});
}

std::vector<int> ListWriter::ends_of_lanes() const {
  std::vector<int> ends(2 + plan_.schedule.groups.size(), kNone);
  for (int i = 0; i <= last_action(); ++i) ends[actions_[i].lane] = i;
  return ends;
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
    if (bucket.trained &&
        (plan_.schedule.shard < 2 || plan_.shard_lane == kComputeLane))
      commit.takes += gradient_bytes(plan_.schedule, bucket);
  }
  for (int i = 0; i < buckets() && !plan_.options.forward_only; ++i)
    if (plan_.schedule.buckets[i].trained) commit.buckets.push_back(i);
  if (has_mirrors(plan_.schedule) && !commit.buckets.empty())
    commit.needs.push_back(ActionKind::kMirror);
  commit.waits = ends_of_lanes();
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
