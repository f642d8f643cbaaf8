// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/list_writer.h"

#include <algorithm>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/step/buckets.h"
#include "cohort/step/derive.h"

namespace cohort {
ListWriter::ListWriter(const StepPlan& plan, int slices)
    : plan_(plan),
      slices_(slices),
      updated_(plan.schedule.buckets.size(), false),
      has_memory_(plan.schedule.buckets.size(), false),
      slot_used_(static_cast<size_t>(plan.slots), false),
      gathered_(plan.schedule.buckets.size(), kNone),
      buffers_(plan.slots) {}

int ListWriter::add(Action action) {
  actions_.push_back(std::move(action));
  return static_cast<int>(actions_.size()) - 1;
}

std::vector<Action> ListWriter::take() {
  derive_waits(actions_, plan_.schedule.lanes());
  return std::move(actions_);
}

void ListWriter::read_inputs(Action& action) {
  if (action.block == 0)
    versions_.read(action, What::kInput, kNone, action.slice);
  else
    versions_.read(action, What::kAct, action.block - 1, action.slice);
  for (const int bucket : action.buckets) versions_.read(action, What::kWhole, bucket);
}

void ListWriter::forward(int block, int slice) {
  const BlockSpec& spec = plan_.blocks[block];
  const bool forward_only = plan_.options.forward_only;
  const bool keeps = !forward_only && !plan_.options.recompute.has(block);
  const bool first = block == 0, last = block + 1 == blocks();
  Action action{
      .kind = ActionKind::kForward,
      .block = block,
      .slice = slice,
      .buckets = plan_.uses[block],
      .takes = keeps ? spec.activation_bytes : spec.output_bytes,
      .frees = (forward_only && !first ? plan_.blocks[block - 1].output_bytes : 0) +
               (forward_only && last ? spec.output_bytes : 0),
      .scratch = spec.scratch_bytes};
  read_inputs(action);
  versions_.make(action, What::kAct, block, slice);
  if (!forward_only) versions_.make(action, What::kFlight, block, slice);
  if (spec.keeps_statistics && !forward_only)
    versions_.make(action, What::kStat, block, slice);
  if (last) versions_.make(action, What::kLoss, kNone, slice);
  add(std::move(action));
}

void ListWriter::backward(int block, int slice) {
  const BlockSpec& spec = plan_.blocks[block];
  int64_t held = spec.activation_bytes;
  if (plan_.options.recompute.has(block)) {
    held += spec.output_bytes;
    Action again{.kind = ActionKind::kRecompute,
                 .block = block,
                 .slice = slice,
                 .buckets = plan_.uses[block],
                 .takes = spec.activation_bytes,
                 .scratch = spec.scratch_bytes};
    read_inputs(again);
    versions_.change(again, What::kFlight, block, slice);
    add(std::move(again));
  }
  Action action{.kind = ActionKind::kBackward,
                .block = block,
                .slice = slice,
                .buckets = plan_.uses[block],
                .frees = held,
                .scratch = spec.scratch_bytes};
  versions_.read(action, What::kFlight, block, slice);
  if (block + 1 < blocks()) versions_.read(action, What::kActGrad, block, slice);
  for (const int bucket : action.buckets) versions_.read(action, What::kWhole, bucket);
  if (block > 0) versions_.make(action, What::kActGrad, block - 1, slice);
  add_to_gradients(action);
  add(std::move(action));
}

void ListWriter::add_to_gradients(Action& action) {
  for (const int bucket : action.buckets) {
    if (!plan_.schedule.buckets[bucket].trained) continue;
    if (takes_turns()) take_gradient(action, bucket);
    const What what = takes_turns() ? What::kLeaf : What::kPartial;
    const int slice = takes_turns() ? action.slice : kNone;
    if (versions_.has(what, bucket, slice))
      versions_.change(action, what, bucket, slice);
    else
      versions_.make(action, what, bucket, slice, slot_of(bucket));
  }
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

int ListWriter::slot_of(int bucket) const {
  return takes_turns() ? plan_.schedule.buckets[bucket].slot : kNone;
}

void ListWriter::reduce_loss() {
  if (plan_.dp_lane == kComputeLane) return;
  Action action{.kind = ActionKind::kReduce,
                .lane = plan_.dp_lane,
                .buckets = {kLossBucket},
                .bytes = kLossBytes};
  read_loss(action);
  versions_.make(action, What::kLoss);
  add(std::move(action));
}

void ListWriter::read_loss(Action& action) {
  if (versions_.has(What::kLoss)) return versions_.read(action, What::kLoss);
  for (int slice = 0; slice < slices_ && blocks() > 0; ++slice)
    versions_.read(action, What::kLoss, kNone, slice);
}

void ListWriter::reduce(int bucket) {
  if (plan_.dp_lane == kComputeLane) return;
  const Bucket& what = plan_.schedule.buckets[bucket];
  Action action{.kind = ActionKind::kReduce,
                .lane = plan_.dp_lane,
                .buckets = {bucket},
                .bytes = what.numel * size_of(plan_.schedule.precision.reduce)};
  versions_.read(action, What::kPartial, bucket);
  versions_.make(action, What::kSum, bucket);
  add(std::move(action));
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
  read_addends(action, bucket);
  if (versions_.has(What::kSum, bucket))
    versions_.change(action, What::kSum, bucket);
  else
    versions_.make(action, What::kSum, bucket);
  if (last_reduction_ != kNone) actions_[last_reduction_].frees = 0;
  action.frees = gradients_taken_;
  has_memory_[bucket] = false;
  last_reduction_ = add(std::move(action));
  if (slice != kNone && slice + 1 != plan_.rounds) return;
  mirror(std::exchange(next_to_mirror_, bucket));
  if (plan_.replicate_lane == kComputeLane) return;
  Action replicas{.kind = ActionKind::kReduce,
                  .lane = plan_.replicate_lane,
                  .buckets = {bucket},
                  .bytes = share(bucket) * width};
  versions_.change(replicas, What::kSum, bucket);
  add(std::move(replicas));
}

// Who has no such slice gives nothing, from the same memory.
void ListWriter::read_addends(Action& action, int bucket) {
  if (!takes_turns()) return versions_.read(action, What::kPartial, bucket);
  take_gradient(action, bucket);
  if (versions_.has(What::kLeaf, bucket, action.slice))
    versions_.read(action, What::kLeaf, bucket, action.slice);
  else
    versions_.make(action, What::kLeaf, bucket, action.slice, slot_of(bucket));
}

void ListWriter::mirror(int bucket) {
  if (bucket == kNone || !has_mirrors(plan_.schedule)) return;
  Action action{.kind = ActionKind::kMirror,
                .lane = plan_.shard_lane,
                .buckets = {bucket},
                .bytes = share(bucket) * size_of(sum_type(plan_.schedule))};
  versions_.read(action, What::kSum, bucket);
  versions_.make(action, What::kMirrored, bucket);
  add(std::move(action));
}

void ListWriter::gather(int bucket, int slice) {
  const int64_t width = size_of(plan_.schedule.precision.compute);
  const int64_t gathered = gathered_bytes(plan_.schedule, bucket);
  // Of whole parameters that were updated in shares a copy of the share travels, unless
  // the reduction has written it everywhere.
  const int64_t copy = plan_.schedule.keeps_sums ? share(bucket) * width : 0;
  Action action{.kind = ActionKind::kGather,
                .lane = plan_.gather_lane,
                .slice = slice,
                .buckets = {bucket},
                .bytes = plan_.schedule.buckets[bucket].numel * width,
                .takes = is_cut() ? gathered : copy,
                .frees = is_cut() ? 0 : copy};
  versions_.read(action, What::kState, bucket);
  if (is_cut()) {
    gathered_[bucket] = gathered > 0 ? take_buffer() : kNone;
    versions_.make(action, What::kWhole, bucket, kNone, gathered_[bucket]);
  } else {
    versions_.change(action, What::kWhole, bucket);
  }
  add(std::move(action));
}

int ListWriter::take_buffer() {
  if (free_.empty()) return buffers_++;
  const int buffer = free_.front();
  free_.pop_front();
  return buffer;
}

void ListWriter::free_parameters(int bucket, int slice) {
  Action action{.kind = ActionKind::kFree,
                .slice = slice,
                .buckets = {bucket},
                .frees = gathered_bytes(plan_.schedule, bucket)};
  versions_.change(action, What::kWhole, bucket);
  if (gathered_[bucket] != kNone) free_.push_back(gathered_[bucket]);
  add(std::move(action));
}

bool ListWriter::may_overlap_updates() const {
  return plan_.options.overlap_updates && !plan_.options.clip && !plan_.options.vote;
}

void ListWriter::update(int bucket) {
  if (updated_[bucket] || !plan_.schedule.buckets[bucket].trained) return;
  updated_[bucket] = true;
  if (plan_.options.offload) offload(bucket);
  Action action{.kind = ActionKind::kUpdate,
                .buckets = {bucket},
                .bytes = (has_mirrors(plan_.schedule) ? 2 : 1) * share(bucket) *
                         size_of(at::kFloat)};
  read_gradient(action, bucket);
  read_loss(action);
  if (plan_.options.clip) versions_.read(action, What::kNorm);
  if (plan_.options.vote) versions_.read(action, What::kVote);
  versions_.change(action, What::kState, bucket);
  if (!is_cut() && !plan_.options.offload)
    versions_.change(action, What::kWhole, bucket);
  add(std::move(action));
  if (plan_.options.offload) fetch(bucket);
  const int level = plan_.schedule.shard;
  if ((level == 1 || level == 2) && plan_.shard_lane != kComputeLane)
    gather(bucket, kNone);
}

void ListWriter::offload(int bucket) {
  Action action{.kind = ActionKind::kOffload,
                .lane = plan_.copy_lane,
                .buckets = {bucket},
                .bytes = share(bucket) * size_of(plan_.schedule.precision.reduce)};
  versions_.change(action, sum_of(bucket), bucket);
  if (versions_.has(What::kMirrored, bucket))
    versions_.change(action, What::kMirrored, bucket);
  add(std::move(action));
}

void ListWriter::fetch(int bucket) {
  Action action{.kind = ActionKind::kFetch,
                .lane = plan_.copy_lane,
                .buckets = {bucket},
                .bytes = share(bucket) * size_of(plan_.schedule.precision.compute)};
  if (is_cut()) {
    versions_.change(action, What::kState, bucket);
  } else {
    versions_.read(action, What::kState, bucket);
    versions_.change(action, What::kWhole, bucket);
  }
  add(std::move(action));
}

// The sum over ranks, or over slices where there is one rank.
What ListWriter::sum_of(int bucket) const {
  return versions_.has(What::kSum, bucket) ? What::kSum : What::kPartial;
}

void ListWriter::read_gradient(Action& action, int bucket) {
  versions_.read(action, sum_of(bucket), bucket);
  if (versions_.has(What::kMirrored, bucket))
    versions_.read(action, What::kMirrored, bucket);
}

void ListWriter::read_gradients(Action& action) {
  for (int i = 0; i < buckets(); ++i)
    if (plan_.schedule.buckets[i].trained) read_gradient(action, i);
}

void ListWriter::finish_updates() {
  mirror(std::exchange(next_to_mirror_, kNone));
  if (plan_.options.clip) {
    Action norm{.kind = ActionKind::kNorm, .lane = plan_.dp_lane};
    read_gradients(norm);
    read_loss(norm);
    versions_.make(norm, What::kNorm);
    add(std::move(norm));
  }
  if (plan_.options.elastic) fold_buffers();
  if (plan_.options.vote) {
    Action vote{.kind = ActionKind::kVote, .lane = plan_.dp_lane, .bytes = 8};
    read_gradients(vote);
    read_loss(vote);
    if (plan_.options.clip) versions_.read(vote, What::kNorm);
    if (versions_.has(What::kFolded)) versions_.read(vote, What::kFolded);
    versions_.make(vote, What::kVote);
    add(std::move(vote));
  }
  for (int i = 0; i < buckets(); ++i) update(i);
}

bool ListWriter::has_statistics() const {
  return !plan_.options.forward_only &&
         std::any_of(plan_.blocks.begin(), plan_.blocks.end(),
                     [](const BlockSpec& block) { return block.keeps_statistics; });
}

void ListWriter::fold_buffers() {
  if (!has_statistics()) return;
  Action action{.kind = ActionKind::kFoldBuffers, .lane = plan_.dp_lane};
  for (int b = 0; b < blocks(); ++b)
    for (int slice = 0; plan_.blocks[b].keeps_statistics && slice < slices_; ++slice)
      versions_.read(action, What::kStat, b, slice);
  versions_.make(action, What::kFolded);
  add(std::move(action));
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
  read_results(commit);
  add(std::move(commit));
}

// All that a step leaves.
void ListWriter::read_results(Action& commit) {
  for (const int bucket : commit.buckets) {
    versions_.read(commit, What::kState, bucket);
    if (!is_cut()) versions_.read(commit, What::kWhole, bucket);
  }
  read_loss(commit);
  for (const What what : {What::kNorm, What::kVote, What::kFolded})
    if (versions_.has(what)) versions_.read(commit, what);
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
