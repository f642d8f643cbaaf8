// SPDX-License-Identifier: Apache-2.0
#include "cohort/step/list_writer.h"

#include <algorithm>
#include <utility>

#include "cohort/core/error.h"
#include "cohort/step/buckets.h"
#include "cohort/step/memory_plan.h"

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
      updated_(plan.schedule.buckets.size(), false) {}

void ListWriter::add(Action action) {
  declarer_.declare(action);
  for (auto& access : action.writes) access.bytes = activation_bytes(action, access);
  actions_.push_back(std::move(action));
}

// What is kept from forward to backward; of a block that is recomputed the output
// alone, until then.
int64_t ListWriter::activation_bytes(const Action& action, const Access& access) const {
  if (action.block == kNone) return 0;
  const BlockSpec& spec = plan_.blocks[action.block];
  if (access.value.what == What::kAct) return spec.output_bytes;
  if (access.value.what != What::kFlight) return 0;
  if (action.kind == ActionKind::kRecompute) return spec.activation_bytes;
  if (plan_.options.recompute.has(action.block)) return 0;
  return std::max<int64_t>(0, spec.activation_bytes - spec.output_bytes);
}

void ListWriter::compute(ActionKind kind, int block, int slice) {
  add({.kind = kind,
       .block = block,
       .slice = slice,
       .buckets = plan_.uses[block],
       .scratch = plan_.blocks[block].scratch_bytes});
}

void ListWriter::forward(int block, int slice) {
  compute(ActionKind::kForward, block, slice);
}

void ListWriter::backward(int block, int slice) {
  if (plan_.options.recompute.has(block)) compute(ActionKind::kRecompute, block, slice);
  compute(ActionKind::kBackward, block, slice);
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
  add({.kind = ActionKind::kReduceScatter,
       .lane = plan_.shard_lane,
       .slice = slice,
       .buckets = {bucket},
       .bytes = what.numel * width});
  if (slice != kNone && slice + 1 != plan_.rounds) return;
  mirror(std::exchange(next_to_mirror_, bucket));
  if (plan_.replicate_lane == kComputeLane) return;
  add({.kind = ActionKind::kReduce,
       .lane = plan_.replicate_lane,
       .buckets = {bucket},
       .bytes = share(bucket) * width});
}

bool ListWriter::may_update_at_once() const {
  return !plan_.schedule.keeps_sums && plan_.dp_lane != kComputeLane;
}

void ListWriter::reduce_update(int bucket, int slice) {
  updated_[bucket] = true;
  add({.kind = ActionKind::kReduceUpdate,
       .lane = plan_.shard_lane,
       .slice = slice,
       .buckets = {bucket},
       .bytes = plan_.schedule.buckets[bucket].numel *
                size_of(plan_.schedule.precision.reduce)});
}

void ListWriter::mirror(int bucket) {
  if (bucket == kNone || !has_mirrors(plan_.schedule)) return;
  add({.kind = ActionKind::kMirror,
       .lane = plan_.shard_lane,
       .buckets = {bucket},
       .bytes = share(bucket) * size_of(sum_type(plan_.schedule))});
}

// Where whole parameters were updated in shares, a copy of the share travels, unless
// the reduction has written it everywhere.
void ListWriter::gather(int bucket, int slice) {
  const int64_t width = size_of(plan_.schedule.precision.compute);
  const bool copies = plan_.schedule.shard < 3 && plan_.schedule.keeps_sums;
  add({.kind = ActionKind::kGather,
       .lane = plan_.gather_lane,
       .slice = slice,
       .buckets = {bucket},
       .bytes = plan_.schedule.buckets[bucket].numel * width,
       .scratch = copies ? share(bucket) * width : 0});
}

void ListWriter::free_parameters(int bucket, int slice) {
  add({.kind = ActionKind::kFree, .slice = slice, .buckets = {bucket}});
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
    add({.kind = ActionKind::kVote, .lane = plan_.dp_lane, .bytes = kVoteBytes});
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
  for (int i = 0; i < buckets() && !plan_.options.forward_only; ++i)
    if (plan_.schedule.buckets[i].trained) commit.buckets.push_back(i);
  if (has_mirrors(plan_.schedule) && !commit.buckets.empty())
    commit.needs.push_back(ActionKind::kMirror);
  add(std::move(commit));
}

int64_t ListWriter::share(int bucket) const { return plan_.schedule.share_of(bucket); }

}  // namespace cohort
